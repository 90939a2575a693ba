package webhooks

import (
	"context"
	"time"
)

// probePause is how much time passes at least between two attempts of one webhook that
// somebody asked for, as [Store.Probe] has it.
const probePause = time.Second

// probe has an attempt made at what the webhook is owed, by whichever process, though
// its receiver is down. It is no failure of what was asked for if that cannot be noted:
// the pause ends by itself, within some minute.
func (s *WebhookService) probe(ctx context.Context, account, webhookID string) {
	if err := s.store.Probe(ctx, account, webhookID); err != nil && ctx.Err() == nil {
		s.logger.Warn("storageapi: webhook store failed", "step", "probe", "account", account, "webhook", webhookID, "error", err)
	}
	s.dispatcher.hurry()
}

// retrust is probe if there is reason to believe that the webhook is up: what was known
// of its receiver counts for little from now on.
func (s *WebhookService) retrust(ctx context.Context, account, webhookID string) {
	s.probe(ctx, account, webhookID) // first: it is to be the next attempt
	s.dispatcher.hope(webhookID)
	s.dispatcher.hurry()
}

// hope notes that a webhook of which something is known may be up.
func (d *dispatcher) hope(webhook string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pacer.tracks[webhook] != nil {
		d.hopes[webhook] = true
	}
}

// takeHopes tells the pacer of those that are hoped for. The run loop calls it, with
// the mutex held.
func (d *dispatcher) takeHopes(now time.Time) {
	for webhook := range d.hopes {
		d.pacer.hope(webhook, now)
	}
	clear(d.hopes)
}

// hope ends the pause of a webhook that is down: one attempt that fails begins it anew.
// If there was one just now the next waits, also for the one that somebody asked for.
func (p *pacer) hope(webhook string, now time.Time) {
	w := p.tracks[webhook]
	if w == nil {
		return
	}
	w.hopeful = true
	switch {
	case w.condition != down:
	case now.Sub(w.active) < probePause:
		w.turn = earliest(w.turn, w.active.Add(2*probePause))
		p.arrange(w)
	default:
		p.halfOpen(w, now)
	}
}

// halfOpen lets a webhook that is down begin as one that has recovered, until the next
// failure.
func (p *pacer) halfOpen(w *track, now time.Time) {
	w.failures = downAfter - 1
	w.slow = w.slow && w.lagging > 0
	w.restart(now)
	p.become(w, w.assess())
}
