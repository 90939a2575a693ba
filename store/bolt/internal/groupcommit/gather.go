package groupcommit

import (
	"runtime"
	"slices"
	"time"
)

const (
	maxBatch = 1024 // maximum steps per commit

	// If recent commits had at least minCrowd steps, a commit with fewer than enough steps waits up
	// to maxGather until it has about the number of steps that recent commits had. Under such load,
	// small commits would delay callers more than this wait does.
	minCrowd  = 32
	enough    = 256
	maxGather = 2 * time.Millisecond
)

// lead commits the waiting steps.
func (w *Writer[B]) lead() { w.transact(w.gather()) }

// transact commits the steps in one transaction, and survives every failure of a step. If a step
// fails after it has written, or ends its goroutine, the transaction is rolled back and the other
// steps run again in a new one.
func (w *Writer[B]) transact(steps []*step[B]) {
	t := &transaction[B]{writer: w, steps: steps}
	defer func() { // also runs if a step ends the goroutine
		if culprit, rest := t.culprit(); culprit != nil {
			culprit.outcome <- culprit.own
			go w.transact(rest)
			return
		}
		if t.again() {
			for _, s := range steps {
				s.own = errNotDone
			}
			go w.transact(steps)
			return
		}
		// Call handOver first, so that the next transaction runs while these callers get their
		// results.
		w.handOver(len(steps))
		for _, s := range steps {
			s.outcome <- t.outcome(s)
		}
		clear(steps) // w.waiting still references their array
	}()
	t.run()
}

// handOver starts the next transaction. n is the number of steps of the previous transaction.
func (w *Writer[B]) handOver(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crowd = max(n+len(w.waiting), w.crowd*7/8)
	switch w.leading = len(w.waiting) > 0; {
	case w.leading:
		go w.lead()
	case w.idle != nil:
		close(w.idle)
	}
}

// gather takes the steps for one commit from the queue. Under recent heavy load, it first waits up
// to maxGather until the queue has about the number of steps that recent commits had. A step whose
// context has ended gets the context's error.
func (w *Writer[B]) gather() []*step[B] {
	w.mu.Lock()
	defer w.mu.Unlock()
	for before := 0; before < len(w.waiting) && len(w.waiting) < maxBatch; {
		before = len(w.waiting)
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
	if w.wanted = min(w.crowd*9/10, enough); w.crowd >= minCrowd && len(w.waiting) < w.wanted {
		here := make(chan struct{})
		w.here = here
		w.mu.Unlock()
		select {
		case <-here:
		case <-time.After(maxGather):
		}
		w.mu.Lock()
		w.here = nil
	}
	n := min(len(w.waiting), maxBatch)
	if i := slices.IndexFunc(w.waiting[:n], func(s *step[B]) bool { return s.alone }); i >= 0 {
		n = max(i, 1)
	}
	steps := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	return slices.DeleteFunc(steps, func(s *step[B]) bool {
		err := s.ctx.Err()
		if err != nil {
			s.outcome <- err
		}
		return err != nil
	})
}
