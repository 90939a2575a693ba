package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A ledger says of each event of a stage what became of it. It is safe for concurrent use.
type ledger struct {
	mu        sync.Mutex
	first     int // the number of events[0]: numbers go on from stage to stage
	events    []event
	moved     time.Time // when something last happened
	processor time.Duration
	ended     error // why nothing arrives any more

	// Since the program began.
	acknowledged int // events
	reports      int // of the receiver
}

// An event is one that was due; what has not happened is zero.
type event struct {
	due, begun, acknowledged, arrived time.Time
	failed                            error
	times                             int // it arrived
}

// A tally counts events.
type tally struct{ acknowledged, failed, arrived, missing, repeated int }

// open begins a stage of so many events, and returns the first one's number.
func (l *ledger) open(events int) (first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first += len(l.events)
	l.events = make([]event, events)
	l.moved = time.Now()
	return l.first
}

// published notes what came of a Publish.
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

// note notes what has arrived. What belongs to an earlier stage is a repetition that no one
// waits for.
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

// end notes that nothing arrives any more.
func (l *ledger) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = err
}

// over returns why nothing arrives any more; nil if it does.
func (l *ledger) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// receiverTime returns the processor time that the receiver has used, as of its last report.
func (l *ledger) receiverTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processor
}

// await waits until all that was acknowledged is on record as delivered, of which recorded says
// how many events are since the program began, and the receiver has had the time to report it;
// or until nothing has happened for as long as patience. It returns what became of the events.
func (l *ledger) await(patience time.Duration, recorded func() int) (tally, []event) {
	done := -1 // how many reports there were when all was on record
	for {
		l.mu.Lock()
		if done < 0 && recorded() >= l.acknowledged {
			done = l.reports
		}
		// A report may have been on its way then, the one that follows was not.
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

// check returns an error if something was lost or refused.
func (l *ledger) check(t tally, events []event) error {
	var err error
	if t.missing > 0 {
		err = fmt.Errorf("%d of %d acknowledged events did not arrive", t.missing, t.acknowledged)
	}
	if t.failed > 0 {
		for i := range events {
			if events[i].failed != nil {
				return errors.Join(err, fmt.Errorf("%d events were not published, the first: %w", t.failed, events[i].failed))
			}
		}
	}
	return errors.Join(err, l.over())
}
