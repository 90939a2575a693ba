package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A ledger records the fate of each event of a stage. It is safe for concurrent use.
type ledger struct {
	mu        sync.Mutex
	first     int // number of events[0]; numbers continue from stage to stage
	events    []event
	moved     time.Time // last progress
	processor time.Duration
	ended     error // why the receiver stopped reporting

	// Since the start of the program.
	acknowledged int // events
	reports      int // from the receiver
}

// An event holds the times of an event. Each is zero until it is known.
type event struct {
	due, begun, acknowledged, arrived time.Time
	failed                            error
	times                             int // number of arrivals
}

// A tally counts events.
type tally struct{ acknowledged, failed, arrived, missing, repeated int }

// open starts a stage with the given number of events, and returns the number of the first.
func (l *ledger) open(events int) (first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first += len(l.events)
	l.events = make([]event, events)
	l.moved = time.Now()
	return l.first
}

// published records the result of a Publish.
func (l *ledger) published(number int, due, begun time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.events[number-l.first]
	l.moved = time.Now()
	e.due, e.begun, e.failed = due, begun, err
	if err == nil {
		e.acknowledged = l.moved
		l.acknowledged++
	}
}

// note records a report of the receiver. It ignores repeated arrivals of events of earlier stages.
func (l *ledger) note(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processor = r.Processor
	l.reports++
	for _, a := range r.Arrivals {
		l.moved = time.Now()
		if i := a.Number - l.first; i >= 0 && i < len(l.events) {
			e := &l.events[i]
			if e.times++; e.times == 1 {
				e.arrived = time.Unix(0, a.At)
			}
		}
	}
}

// end records why the receiver has stopped reporting.
func (l *ledger) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = err
}

// over returns the error given to end, or nil.
func (l *ledger) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// receiverTime returns the receiver's processor time as of its last report.
func (l *ledger) receiverTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processor
}

// await waits until all acknowledged events are recorded as delivered and the receiver has had time
// to report them. It gives up if there is no progress for the time patience. recorded returns the
// number of events recorded as delivered since the start of the program.
func (l *ledger) await(patience time.Duration, recorded func() int) (tally, []event) {
	done := -1 // number of reports when all events were recorded
	for {
		l.mu.Lock()
		if done < 0 && recorded() >= l.acknowledged {
			done = l.reports
		}
		// The next report may have been sent before all events were recorded; the report after it
		// was not.
		if done >= 0 && l.reports >= done+2 || l.ended != nil || time.Since(l.moved) > patience {
			events := slices.Clone(l.events)
			l.mu.Unlock()
			return tallyOf(events), events
		}
		l.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

func tallyOf(events []event) (t tally) {
	for i := range events {
		e := &events[i]
		if e.failed != nil {
			t.failed++
		}
		if e.times > 0 {
			t.arrived++
		}
		if e.times > 1 {
			t.repeated++
		}
		if !e.acknowledged.IsZero() {
			t.acknowledged++
			if e.times == 0 {
				t.missing++
			}
		}
	}
	return t
}

// check returns an error if an event was lost or rejected.
func (l *ledger) check(t tally, events []event) error {
	var err error
	if t.missing > 0 {
		err = fmt.Errorf("%d of %d acknowledged events did not arrive", t.missing, t.acknowledged)
	}
	if t.failed > 0 {
		for i := range events {
			if events[i].failed != nil {
				return errors.Join(err, fmt.Errorf("%d events were not published; first error: %w", t.failed, events[i].failed))
			}
		}
	}
	return errors.Join(err, l.over())
}
