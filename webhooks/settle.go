package webhooks

import (
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// maxConflicts limits how often one call of settle repeats a decision because a user changed the
// webhook at the same time.
const maxConflicts = 32

// A settling is one call to the store's Settle. It holds the results of a batch and the changes to
// webhooks' health that follow from them.
type settling struct {
	store     driver.WebhookStore
	scheduler *scheduler.Scheduler
	now       time.Time
	batch     []*inflight
	stale     []int // indexes in batch
	decisions []*decision
}

// A decision is a change to a webhook's health that follows from results.
type decision struct {
	base    *Webhook // the state that the decision is based on
	paused  bool     // base is paused
	health  driver.WebhookHealth
	entries []audit.Entry
	results []*settlement
}

// add applies the result of one more settlement.
func (d *decision) add(s *settlement) {
	if d.paused && s.fails() && s.Deactivate == "" {
		return // no attempt follows before the pause ends, so the webhook must not count as failing
	}
	before := d.health
	d.health = s.after(before)
	if before.Active && !d.health.Active && s.Off != nil {
		d.entries = append(d.entries, *s.Off)
	}
	if s.delivers() && !before.WarnedAt.IsZero() && s.Recovered != nil {
		d.entries = append(d.entries, *s.Recovered)
	}
}

// settle stores the results and sets each attempt's fate.
func (s *settling) settle(ctx context.Context) error {
	results, of := s.results()
	s.decide()
	settled := driver.Settled{}
	if len(results)+len(s.decisions) > 0 {
		var err error
		if settled, err = s.store.Settle(ctx, results, changesOf(s.decisions)); err != nil {
			return err
		}
	}
	for _, i := range settled.Stale {
		s.stale = append(s.stale, of[i])
	}
	for i, f := range s.batch {
		_, stale := slices.BinarySearch(s.stale, i)
		f.fate = fateOf(&f.settlement, stale)
	}
	s.decideAgain(ctx, s.stored(s.decisions, settled.Conflicts))
	return nil
}

// results returns the results of the batch's attempts, and the index in the batch of each result.
func (s *settling) results() (results []driver.AttemptResult, of []int) {
	results, of = make([]driver.AttemptResult, 0, len(s.batch)), make([]int, 0, len(s.batch))
	for i, f := range s.batch {
		if e := &f.settlement; !e.Postponed {
			results = append(results, driver.AttemptResult{
				DeliveryRef: driver.DeliveryRef{WebhookID: f.slot.Webhook(), Number: f.slot.Number()},
				Effect:      e.Effect, Attempt: e.Attempt, RetryAfter: e.RetryAfter,
			})
			of = append(of, i)
		}
	}
	return results, of
}

// fateOf returns the fate of a delivery after its result was stored, or refused as stale.
func fateOf(s *settlement, stale bool) scheduler.Fate {
	switch {
	case stale:
		return scheduler.Fate{Stale: true}
	case s.Postponed:
		return scheduler.Fate{Pending: true, After: s.RetryAfter}
	case s.Effect == driver.Retry:
		return scheduler.Fate{Pending: true, After: s.RetryAfter, Attempts: s.Attempt.Number, Asked: s.Asked}
	}
	return scheduler.Fate{}
}

// decide computes the effects of the results on the webhooks known to the scheduler. If an
// attempt went to a URL that the webhook no longer has, its result is about another receiver and
// has no effect.
func (s *settling) decide() {
	decisions := make(map[string]*decision)
	var order []*decision
	for _, f := range s.batch {
		record, ok := s.scheduler.Record(&f.slot).(*Webhook)
		if e := &f.settlement; ok && e.Task.Webhook.URL == record.URL {
			d := decisions[record.ID]
			if d == nil {
				d = &decision{base: record, paused: record.Paused(s.now), health: record.WebhookHealth}
				decisions[record.ID] = d
				order = append(order, d)
			}
			d.results = append(d.results, e)
			d.add(e)
		}
	}
	for _, d := range order {
		if d.health != d.base.WebhookHealth {
			s.decisions = append(s.decisions, d)
		}
	}
}

func changesOf(decisions []*decision) []driver.HealthChange {
	var changes []driver.HealthChange
	for _, d := range decisions {
		changes = append(changes, driver.HealthChange{
			Account: d.base.Account, WebhookID: d.base.ID, Version: d.base.Version,
			Health: d.health, AuditEntries: d.entries,
		})
	}
	return changes
}

// stored passes stored decisions to the scheduler, and returns the decisions that had conflicts.
func (s *settling) stored(decisions []*decision, conflicts []int) (again []*decision) {
	for i, d := range decisions {
		if _, conflict := slices.BinarySearch(conflicts, i); conflict {
			again = append(again, d)
			continue
		}
		w := *d.base
		w.WebhookHealth, w.Version = d.health, d.base.Version+1
		s.scheduler.Update(recordOf(&w))
	}
	return again
}

// decideAgain repeats decisions that had conflicts, on the current webhooks. Each round is one
// call to Settle. A tenant that changes webhooks in a loop cannot delay the results of others,
// which are already stored. After an error decideAgain gives up, because the next result leads to
// a new decision.
func (s *settling) decideAgain(ctx context.Context, again []*decision) {
	for round := 0; round < maxConflicts && len(again) > 0; round++ {
		decisions := make([]*decision, 0, len(again))
		for _, d := range again {
			if d = s.redecide(ctx, d); d != nil {
				decisions = append(decisions, d)
			}
		}
		if len(decisions) == 0 {
			return
		}
		settled, err := s.store.Settle(ctx, nil, changesOf(decisions))
		if err != nil {
			return
		}
		again = s.stored(decisions, settled.Conflicts)
	}
}

// redecide repeats a decision on the current webhook. It returns nil if the results have no
// effect, if the URL has changed, if a user disabled the webhook, or if the webhook cannot be
// read.
func (s *settling) redecide(ctx context.Context, d *decision) *decision {
	w, err := s.store.WebhookByID(ctx, d.base.Account, d.base.ID)
	if err != nil || w.URL != d.base.URL || d.base.Active && !w.Active {
		return nil
	}
	s.scheduler.Update(recordOf(&w))
	again := &decision{base: &w, paused: w.Paused(s.now), health: w.WebhookHealth, results: d.results}
	for _, e := range d.results {
		again.add(e)
	}
	if again.health == w.WebhookHealth {
		return nil
	}
	return again
}
