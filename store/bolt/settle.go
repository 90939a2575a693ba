package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// Settle implements [webhooks.Deliveries].
func (s *Store) Settle(ctx context.Context, results []webhooks.AttemptResult, health []webhooks.HealthChange) (settled webhooks.Settled, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		settled = webhooks.Settled{}
		for i := range results {
			counts, err := s.settle(b, &results[i])
			if err != nil {
				return err
			}
			if !counts {
				settled.Stale = append(settled.Stale, i)
			}
		}
		for i := range health {
			counts, err := s.changeHealth(b, &health[i])
			if err != nil {
				return err
			}
			if !counts {
				settled.Conflicts = append(settled.Conflicts, i)
			}
		}
		b.AfterCommit(func() { s.published.settle(results) })
		return nil
	})
	if err != nil {
		return webhooks.Settled{}, err
	}
	return settled, nil
}

// settle stores a result, and reports whether it counts.
func (s *Store) settle(b *batch, r *webhooks.AttemptResult) (counts bool, err error) {
	webhook := s.indexed(b, r.WebhookID)
	before, fresh, pending := b.pending(r.Number)
	if !pending || before.Attempts >= r.Attempt.Number || webhook == nil || b.isErasing(webhook.Account) {
		return false, nil
	}
	if fresh != nil && r.Attempt.Number == 1 {
		fresh.attempts = append(fresh.attempts, firstAttempt{r.Number, record.EncodeAttempt(&r.Attempt, r.Outcome)})
	} else if err := b.logAttempt(r.Number, &r.Attempt, r.Outcome); err != nil {
		return false, err
	}
	if r.Outcome == webhooks.Retry {
		b.fresh.remove(b, r.Number)
		b.noteFailed(r.WebhookID, r.Number, r.Attempt.Class != "")
		value, err := s.encodePending(b, record.Pending{
			Due: time.Now().Add(r.RetryAfter), Attempts: r.Attempt.Number, Before: before.Before, Recovered: before.Recovered,
		})
		if err != nil {
			return false, err
		}
		return true, b.Put(bucketPending, record.NumberKey(r.Number), value)
	}
	if dead := r.Outcome == webhooks.GiveUp; dead || fresh == nil {
		b.noteFailed(r.WebhookID, r.Number, dead)
	}
	return true, b.removePending(r.Number)
}

// changeHealth stores the health of a webhook with the notices, if the webhook still has the
// version on which it was decided, and reports whether it has.
func (s *Store) changeHealth(b *batch, change *webhooks.HealthChange) (counts bool, err error) {
	now := s.indexed(b, change.WebhookID)
	if now == nil || now.err != nil || now.Account != change.Account || now.Version != change.Version || b.isErasing(now.Account) {
		return false, nil
	}
	for _, n := range change.Notices {
		if err := b.tell(n); err != nil {
			return false, err
		}
	}
	webhook := now.Webhook
	webhook.WebhookHealth = change.Health
	return true, s.putWebhook(b, &webhook)
}
