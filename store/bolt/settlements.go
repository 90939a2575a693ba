package bolt

import (
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) ([]int, error) {
	var stale []int
	held := make([]holding, 0, len(settlements))
	for i := range settlements {
		token := settlements[i].Task.Token
		if webhook, number, ok := s.queue.Hold(token); ok {
			held = append(held, holding{index: i, token: token, webhook: webhook, number: number})
		} else if !settlements[i].OnlyReleases() {
			stale = append(stale, i)
		}
	}
	err := s.writer.Run(ctx, func(b *batch) error {
		for i := range held {
			if err := s.settle(b, &held[i], &settlements[held[i].index]); err != nil {
				return err
			}
		}
		b.AfterCommit(func() { s.letGo(held) })
		return nil
	})
	if err != nil {
		for _, h := range held {
			s.queue.Unhold(h.token)
		}
		return nil, err
	}
	for _, h := range held {
		if h.gone && !settlements[h.index].OnlyReleases() {
			stale = append(stale, h.index)
		}
	}
	slices.Sort(stale)
	return stale, nil
}

// A holding is a settlement's lease, kept from running out.
type holding struct {
	index   int // of the settlement
	token   uint64
	webhook string
	number  uint64 // of the delivery

	// What has become of it when the step has run.
	gone    bool // it was not pending any more
	outcome webhooks.Outcome
	next    record.Pending // of a Retry
	later   time.Duration  // of a Release
	asked   bool           // the receiver asked for its wait
}

// letGo ends the leases.
func (s *Store) letGo(held []holding) {
	for i := range held {
		switch h := &held[i]; {
		case h.gone || h.outcome == webhooks.Deliver || h.outcome == webhooks.GiveUp:
			s.queue.Done(h.token)
		case h.outcome == webhooks.Retry:
			s.queue.Retry(h.token, h.next.Due, h.next.Attempts, h.asked)
		case h.later > 0:
			s.queue.Postpone(h.token, time.Now().Add(h.later))
		default:
			s.queue.Release(h.token)
		}
	}
}

// settle takes one of the settlements of a step.
func (s *Store) settle(b *batch, h *holding, settlement *webhooks.Settlement) error {
	webhook := s.indexed(b, h.webhook)
	before, fresh, pending := b.pending(h.number)
	h.gone, h.outcome = !pending || webhook == nil, settlement.Outcome
	if h.gone {
		return nil
	}
	switch {
	case settlement.Outcome == webhooks.Release:
		h.later = settlement.RetryAfter
	case fresh != nil && settlement.Attempt.Number == 1:
		fresh.attempts = append(fresh.attempts, firstAttempt{h.number, record.EncodeAttempt(&settlement.Attempt, settlement.Outcome)})
	default:
		if err := b.logAttempt(h.number, &settlement.Attempt, settlement.Outcome); err != nil {
			return err
		}
	}
	switch settlement.Outcome {
	case webhooks.Retry:
		h.asked = settlement.Asked
		h.next = record.Pending{
			Due: time.Now().Add(settlement.RetryAfter), Attempts: settlement.Attempt.Number, Before: settlement.Task.Before,
			Recovered: before.Recovered,
		}
		b.fresh.remove(b, h.number)
		b.noteFailed(h.webhook, h.number, settlement.Attempt.Class != "")
		value, err := s.encodePending(b, h.next)
		if err != nil {
			return err
		}
		if err := b.Put(bucketPending, record.NumberKey(h.number), value); err != nil {
			return err
		}
	case webhooks.Deliver, webhooks.GiveUp:
		if dead := settlement.Outcome == webhooks.GiveUp; dead || fresh == nil {
			b.noteFailed(h.webhook, h.number, dead)
		}
		if err := b.removePending(h.number); err != nil {
			return err
		}
	}
	return s.settleWebhook(b, webhook, settlement)
}

// settleWebhook records what a settlement means for its webhook, which is mostly
// nothing new.
func (s *Store) settleWebhook(b *batch, now *indexedWebhook, settlement *webhooks.Settlement) error {
	failing := !now.FailingSince.IsZero() || !now.WarnedAt.IsZero()
	ends := (failing || now.ProvenAt.IsZero()) && settlement.Outcome == webhooks.Deliver
	fails := !now.FailedAgain && settlement.Fails()
	if !ends && !fails && settlement.Rest <= 0 && settlement.Deactivate == "" {
		return nil
	}
	if now.err != nil || now.URL != settlement.Task.Webhook.URL {
		return nil
	}
	webhook, id := now.Webhook, now.ID
	if settlement.Rest > 0 {
		until := time.Now().Add(settlement.Rest)
		b.AfterCommit(func() { s.queue.Rest(id, until) })
	}
	if ends {
		if !webhook.WarnedAt.IsZero() && settlement.Recovered != nil {
			if err := b.tell(*settlement.Recovered); err != nil {
				return err
			}
		}
		b.AfterCommit(func() { s.queue.EndRest(id) })
		webhook.EndFailing()
		if webhook.ProvenAt.IsZero() {
			webhook.ProvenAt = settlement.Attempt.StartedAt
		}
	}
	fails = fails && webhook.NoteFailure(settlement.Task.Event.ID, settlement.Attempt.StartedAt)
	if !ends && !fails && settlement.Deactivate == "" {
		return nil // the same event again
	}
	if settlement.Deactivate == "" || !webhook.Active { // a person's reason stays
		return s.putRecord(b, &webhook)
	}
	if settlement.Off != nil {
		if err := b.tell(*settlement.Off); err != nil {
			return err
		}
	}
	webhook.Active, webhook.OffReason, webhook.OffAt = false, settlement.Deactivate, settlement.Attempt.StartedAt
	return s.putWebhook(b, &webhook)
}
