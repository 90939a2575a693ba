package webhooks

import (
	"context"
	"slices"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// maxConflicts is how often the health of a webhook is decided again in one call: each time a
// person changed the webhook in between.
const maxConflicts = 32

// A settling is a call of the store's Settle: the results of a batch, and what they change of
// the health of webhooks.
type settling struct {
	store     Store
	scheduler *scheduler.Scheduler
	batch     []*inflight
	stale     []int // indexes in batch
	decisions []*decision
}

// A decision is what results change of the health of a webhook.
type decision struct {
	base    *Webhook // on which it was decided
	health  WebhookHealth
	entries []audit.Entry
	results []*settlement
}

// add decides on one more result.
func (d *decision) add(s *settlement) {
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
	settled := Settled{}
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

// results returns the attempts' results, and the index in the batch of each.
func (s *settling) results() (results []AttemptResult, of []int) {
	results, of = make([]AttemptResult, 0, len(s.batch)), make([]int, 0, len(s.batch))
	for i, f := range s.batch {
		if e := &f.settlement; !e.Release {
			results = append(results, AttemptResult{
				DeliveryRef: DeliveryRef{WebhookID: f.slot.Webhook(), Number: f.slot.Number()},
				Outcome:     e.Outcome, Attempt: e.Attempt, RetryAfter: e.RetryAfter,
			})
			of = append(of, i)
		}
	}
	return results, of
}

// fateOf returns what becomes of the delivery once its result is stored, or was refused as stale.
func fateOf(s *settlement, stale bool) scheduler.Fate {
	switch {
	case stale:
		return scheduler.Fate{Stale: true}
	case s.Release:
		return scheduler.Fate{Pending: true, After: s.RetryAfter}
	case s.Outcome == Retry:
		return scheduler.Fate{Pending: true, After: s.RetryAfter, Attempts: s.Attempt.Number, Asked: s.Asked}
	}
	return scheduler.Fate{}
}

// decide decides what the results change of webhooks, as the scheduler knows them. A result of
// another URL than the webhook's is of another receiver, and changes nothing.
func (s *settling) decide() {
	decisions := make(map[string]*decision)
	var order []*decision
	for _, f := range s.batch {
		record, ok := s.scheduler.Record(&f.slot).(*Webhook)
		if e := &f.settlement; ok && e.Task.Webhook.URL == record.URL {
			d := decisions[record.ID]
			if d == nil {
				d = &decision{base: record, health: record.WebhookHealth}
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

func changesOf(decisions []*decision) []HealthChange {
	var changes []HealthChange
	for _, d := range decisions {
		changes = append(changes, HealthChange{
			Account: d.base.Account, WebhookID: d.base.ID, Version: d.base.Version,
			Health: d.health, AuditEntries: d.entries,
		})
	}
	return changes
}

// stored tells the scheduler of the decisions that were stored, and returns the others.
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

// decideAgain decides on webhooks as they are, after conflicts, all of a round in one call of
// Settle. Changes that one tenant makes in a loop cannot hold up the results of others: those
// are stored. After an error the next result decides.
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

// redecide decides on the webhook as it is now; nil if the results change nothing, if the URL
// is another, if a person turned the webhook off, and on an error.
func (s *settling) redecide(ctx context.Context, d *decision) *decision {
	w, err := s.store.WebhookByID(ctx, d.base.Account, d.base.ID)
	if err != nil || w.URL != d.base.URL || d.base.Active && !w.Active {
		return nil
	}
	s.scheduler.Update(recordOf(&w))
	again := &decision{base: &w, health: w.WebhookHealth, results: d.results}
	for _, e := range d.results {
		again.add(e)
	}
	if again.health == w.WebhookHealth {
		return nil
	}
	return again
}
