package bolt

import (
	"context"

	"github.com/storageapi/storageapi/store/driver"
)

// Settle implements [driver.Deliveries].
func (s *engine) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (settled driver.Settled, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		settled, err = s.settle(b, results, health)
		return err
	})
	if err != nil {
		return driver.Settled{}, err
	}
	return settled, nil
}

func (s *engine) settle(b *batch, results []driver.AttemptResult, health []driver.HealthChange) (settled driver.Settled, err error) {
	settled.Stale, err = b.log.Settle(results, func(webhook string) bool {
		w := s.indexed(b, webhook)
		return w != nil && !b.isErasing(w.Account)
	})
	if err != nil {
		return settled, err
	}
	for i := range health {
		counts, err := s.changeHealth(b, &health[i])
		if err != nil {
			return settled, err
		}
		if !counts {
			settled.Conflicts = append(settled.Conflicts, i)
		}
	}
	return settled, nil
}

// changeHealth stores a webhook's health and audit entries, unless the webhook has changed since
// the version on which the change is based. It reports whether it stored them.
func (s *engine) changeHealth(b *batch, change *driver.HealthChange) (counts bool, err error) {
	now := s.indexed(b, change.WebhookID)
	if now == nil || now.err != nil || now.Account != change.Account || now.Version != change.Version || b.isErasing(now.Account) {
		return false, nil
	}
	for _, n := range change.AuditEntries {
		if err := b.tell(n); err != nil {
			return false, err
		}
	}
	webhook := now.Webhook
	webhook.WebhookHealth = change.Health
	return true, s.putWebhook(b, &webhook)
}
