package eventlog

import (
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Pending returns the pending state of a delivery, and whether it is pending. asPublished is true
// if the delivery has been pending since its publication, without an attempt. In this case p is
// zero, and the delivery has been due since its publication.
func (s *Step) Pending(number uint64) (p record.Pending, asPublished, pending bool) {
	p, fresh, pending := s.pending(number)
	return p, fresh != nil, pending
}

// pending is like Pending, but returns the bitmap that contains the delivery in place of
// asPublished.
func (s *Step) pending(number uint64) (p record.Pending, fresh *bitmap, pending bool) {
	if fresh := s.fresh.containing(s.tx, number); fresh != nil {
		return p, fresh, true
	}
	value := s.Get(schema.Pending, record.NumberKey(number))
	p, _ = record.DecodePending(value) // an unreadable record counts as the zero Pending
	return p, nil, value != nil
}

// RemovePending ends the pending state of a delivery, without recording an attempt or outcome.
func (s *Step) RemovePending(number uint64) error {
	if s.fresh.remove(s, number) {
		return nil
	}
	return s.Delete(schema.Pending, record.NumberKey(number))
}

// PutPending stores the record of a pending delivery, in place of an earlier record if there is
// one. The delivery must not be in schema.Fresh.
func (s *Step) PutPending(number uint64, p record.Pending) error {
	value, err := s.encodePending(p)
	if err != nil {
		return err
	}
	return s.Put(schema.Pending, record.NumberKey(number), value)
}

// MakePending makes a settled or skipped delivery pending.
func (s *Step) MakePending(webhook string, number uint64, p record.Pending) error {
	if s.skipped.remove(s, number) {
		s.noteFailed(webhook, number, false)
	}
	value, err := s.encodePending(p)
	if err != nil {
		return err
	}
	return s.Append(schema.Pending, record.NumberKey(number), value)
}

// encodePending encodes a Pending whose Due is on the system clock. It converts Due to the file's
// clock, and marks that clock.
func (s *Step) encodePending(p record.Pending) ([]byte, error) {
	if err := s.markClock(); err != nil {
		return nil, err
	}
	p.Due = s.log.options.Clock.Steady(p.Due)
	return p.Encode(), nil
}

// Settle stores the results of attempts. It returns the indexes of stale results. A result is
// stale if its delivery is not pending or already has that attempt, or if accept returns false for
// its webhook.
func (s *Step) Settle(results []driver.AttemptResult, accept func(webhook string) bool) (stale []int, err error) {
	for i := range results {
		counts, err := s.settle(&results[i], accept)
		if err != nil {
			return nil, err
		}
		if !counts {
			stale = append(stale, i)
		}
	}
	return stale, nil
}

func (s *Step) settle(r *driver.AttemptResult, accept func(webhook string) bool) (counts bool, err error) {
	before, fresh, pending := s.pending(r.Number)
	if !pending || before.Attempts >= r.Attempt.Number || !accept(r.WebhookID) {
		return false, nil
	}
	if fresh != nil && r.Attempt.Number == 1 {
		fresh.attempts = append(fresh.attempts, firstAttempt{r.Number, record.EncodeAttempt(&r.Attempt, r.Effect)})
	} else if err := s.logAttempt(r.Number, &r.Attempt, r.Effect); err != nil {
		return false, err
	}
	if r.Effect == driver.Retry {
		s.fresh.remove(s, r.Number)
		s.noteFailed(r.WebhookID, r.Number, r.Attempt.Class != "")
		return true, s.PutPending(r.Number, record.Pending{
			Due: time.Now().Add(r.RetryAfter), Attempts: r.Attempt.Number, Before: before.Before, Recovered: before.Recovered,
		})
	}
	if dead := r.Effect == driver.GiveUp; dead || fresh == nil {
		s.noteFailed(r.WebhookID, r.Number, dead)
	}
	return true, s.RemovePending(r.Number)
}
