package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// maxConflicts is how often the health of a webhook is decided again in one call: each time a
// change of the webhook came between.
const maxConflicts = 32

// A settling is a call of SettleDeliveries.
type settling struct {
	settlements []webhooks.Settlement
	held        []held
	results     []webhooks.AttemptResult
	decisions   []*decision
	stale       []int
}

// A held is a settlement whose lease is current.
type held struct {
	*webhooks.Settlement
	hook     *hook
	webhook  string
	number   uint64
	index    int      // of the settlement
	result   int      // index among the results; -1: it has none
	standing Standing // of the webhook after it
	current  bool     // it is about the webhook's URL as it is
	stale    bool
}

// A decision is what the results of a call change of the health of a webhook.
type decision struct {
	hook    *hook
	base    *webhooks.Webhook // on which it was decided
	health  webhooks.WebhookHealth
	notices []notices.Notice
}

// SettleDeliveries answers [webhooks.Queue.SettleDeliveries].
func (c *Claims) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) (stale []int, err error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	s := &settling{settlements: settlements}
	done := make(chan struct{})
	c.hold(s, done)
	var settled webhooks.Settled
	if len(s.results)+len(s.decisions) > 0 {
		settled, err = c.store.Settle(ctx, s.results, changesOf(s.decisions))
	}
	c.letGo(s, &settled, err)
	close(done)
	c.mu.Lock()
	delete(c.settling, done)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.decideAgain(ctx, s, settled.Conflicts)
	return s.stale, nil
}

// hold keeps the leases from running out, and decides what the results change of webhooks.
func (c *Claims) hold(s *settling, done chan struct{}) {
	c.lock()
	defer c.mu.Unlock()
	c.settling[done] = true
	s.held = make([]held, 0, len(s.settlements))
	s.results = make([]webhooks.AttemptResult, 0, len(s.settlements))
	decided := make(map[*hook]*decision)
	for i := range s.settlements {
		e := &s.settlements[i]
		id, number, ok := c.queue.Hold(e.Task.Token)
		if !ok {
			if !e.OnlyReleases() {
				s.stale = append(s.stale, i)
			}
			continue
		}
		k := c.hooks[id]
		h := held{
			Settlement: e, hook: k, webhook: id, number: number,
			index: i, result: -1, current: e.Task.Webhook.URL == k.webhook.URL,
		}
		if e.Outcome != webhooks.Release {
			h.result = len(s.results)
			s.results = append(s.results, webhooks.AttemptResult{
				DeliveryRef: webhooks.DeliveryRef{WebhookID: id, Number: number},
				Outcome:     e.Outcome, Attempt: e.Attempt, RetryAfter: e.RetryAfter,
			})
		}
		if h.current {
			d := decided[k]
			health := k.webhook.WebhookHealth
			if d != nil {
				health = d.health
			}
			next := after(health, e)
			h.standing = standingOf(&next)
			if next != health {
				if d == nil {
					d = &decision{hook: k, base: k.webhook}
					decided[k] = d
					s.decisions = append(s.decisions, d)
				}
				d.note(health, e)
			}
		}
		s.held = append(s.held, h)
	}
	for _, d := range s.decisions {
		d.hook.storing = d
	}
}

// after returns the health after a settlement.
func after(h webhooks.WebhookHealth, s *webhooks.Settlement) webhooks.WebhookHealth {
	return h.After(s.Outcome, &s.Attempt, s.Task.Event.ID, s.Deactivate)
}

// note adds what a settlement changes.
func (d *decision) note(before webhooks.WebhookHealth, s *webhooks.Settlement) {
	d.health = after(before, s)
	if before.Active && !d.health.Active && s.Off != nil {
		d.notices = append(d.notices, *s.Off)
	}
	if s.Outcome == webhooks.Deliver && !before.WarnedAt.IsZero() && s.Recovered != nil {
		d.notices = append(d.notices, *s.Recovered)
	}
}

// is reports whether w is the webhook as the decision changes it, not a person.
func (d *decision) is(w *webhooks.Webhook) bool {
	return d != nil && w.Version == d.base.Version+1 && w.WebhookHealth == d.health
}

func (d *decision) change() webhooks.HealthChange {
	return webhooks.HealthChange{
		Account: d.base.Account, WebhookID: d.base.ID, Version: d.base.Version,
		Health: d.health, Notices: d.notices,
	}
}

func changesOf(decisions []*decision) []webhooks.HealthChange {
	if len(decisions) == 0 {
		return nil
	}
	changes := make([]webhooks.HealthChange, len(decisions))
	for i, d := range decisions {
		changes[i] = d.change()
	}
	return changes
}

// letGo ends the leases, after what the results say of receivers, which may recover.
func (c *Claims) letGo(s *settling, settled *webhooks.Settled, err error) {
	c.lock()
	defer c.mu.Unlock()
	if err != nil {
		for i := range s.held {
			c.queue.Unhold(s.held[i].Task.Token)
		}
		return
	}
	staleResult := func(h *held) bool {
		_, stale := slices.BinarySearch(settled.Stale, h.result)
		return h.result >= 0 && stale
	}
	now := time.Now()
	for i := range s.held {
		h := &s.held[i]
		if h.stale = staleResult(h); h.stale {
			s.stale = append(s.stale, h.index)
		}
		if h.current && !h.stale && c.hooks[h.webhook] == h.hook {
			if h.Outcome == webhooks.Deliver {
				c.queue.EndRest(h.webhook)
			}
			if h.Rest > 0 {
				c.queue.Rest(h.webhook, now.Add(h.Rest))
			}
			c.queue.SetStanding(h.webhook, h.standing)
		}
	}
	slices.Sort(s.stale)
	for i, d := range s.decisions {
		if _, conflict := slices.BinarySearch(settled.Conflicts, i); !conflict {
			c.stored(d)
		} else if c.hooks[d.base.ID] == d.hook {
			c.queue.SetStanding(d.base.ID, StandingOf(d.hook.webhook))
		}
	}
	for i := range s.held {
		h := &s.held[i]
		c.end(h.webhook, h.number, h.Task.Token, func(token uint64) {
			switch {
			case h.stale: // the next load finds out what has become of it
				c.queue.Retry(token, now, unknown, false)
			case h.Outcome == webhooks.Release && h.RetryAfter > 0:
				c.queue.Postpone(token, now.Add(h.RetryAfter))
			case h.Outcome == webhooks.Release:
				c.queue.Release(token)
			case h.Outcome == webhooks.Retry:
				c.queue.Retry(token, now.Add(h.RetryAfter), h.Attempt.Number, h.Asked)
			default:
				c.queue.Done(token)
			}
		})
	}
}

// stored notes that the store has a decision.
func (c *Claims) stored(d *decision) {
	if c.hooks[d.base.ID] != d.hook || d.hook.webhook.Version > d.base.Version {
		return
	}
	w := *d.base
	w.WebhookHealth, w.Version = d.health, d.base.Version+1
	c.learn(d.hook, &w)
}

// ended notes that settlements which only change the health of a webhook are stale, since it was
// deleted. The store says so of the others.
func (s *settling) ended(k *hook) {
	for i := range s.held {
		if h := &s.held[i]; h.hook == k && h.result < 0 && !h.OnlyReleases() {
			s.stale = append(s.stale, h.index)
		}
	}
	slices.Sort(s.stale)
}

// decideAgain decides on webhooks as they are, after conflicts, all of a round in one call of
// Settle. Changes that one tenant makes in a loop cannot hold up the results of others: those
// are stored.
func (c *Claims) decideAgain(ctx context.Context, s *settling, conflicts []int) {
	again := make([]*decision, 0, len(conflicts))
	for _, at := range conflicts {
		again = append(again, s.decisions[at])
	}
	for round := 0; round < maxConflicts && len(again) > 0; round++ {
		decisions := make([]*decision, 0, len(again))
		for _, d := range again {
			if d = c.redecide(ctx, s, d); d != nil {
				decisions = append(decisions, d)
			}
		}
		if len(decisions) == 0 {
			return
		}
		settled, err := c.store.Settle(ctx, nil, changesOf(decisions))
		if err != nil {
			return
		}
		again = again[:0]
		c.lock()
		for i, d := range decisions {
			if _, conflict := slices.BinarySearch(settled.Conflicts, i); conflict {
				again = append(again, d)
			} else {
				c.stored(d)
			}
		}
		c.mu.Unlock()
	}
}

// redecide returns what the results of a call change of the webhook as it is now; nil if they
// change nothing, if the URL is another, if a person turned the webhook off, and on an error: the
// next result decides then.
func (c *Claims) redecide(ctx context.Context, s *settling, d *decision) *decision {
	w, err := c.store.WebhookByID(ctx, d.base.Account, d.base.ID)
	if errors.Is(err, webhooks.ErrNotFound) {
		s.ended(d.hook)
	}
	if err != nil || w.URL != d.base.URL || d.base.Active && !w.Active {
		return nil
	}
	d = &decision{hook: d.hook, base: &w, health: w.WebhookHealth}
	for i := range s.held {
		if h := &s.held[i]; h.hook == d.hook && h.current && !h.stale {
			d.note(d.health, h.Settlement)
		}
	}
	if d.health == w.WebhookHealth {
		return nil
	}
	c.lock()
	c.learn(d.hook, &w)
	d.hook.storing = d
	c.mu.Unlock()
	return d
}
