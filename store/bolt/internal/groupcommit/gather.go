package groupcommit

import (
	"runtime"
	"slices"
	"time"
)

const (
	maxBatch = 1024 // steps that share a commit

	// While at least minCrowd steps come at a time, a commit that has fewer than
	// enough waits for about as many as came before, up to maxGather: small commits
	// cost such callers more than the wait.
	minCrowd  = 32
	enough    = 256
	maxGather = 2 * time.Millisecond
)

// lead commits what is waiting.
func (w *Writer[B]) lead() { w.transact(w.gather()) }

// transact commits the steps in one transaction. It survives all that steps do: one that
// fails after it has written, or ends its goroutine, takes the transaction down, and
// the others run again in another.
func (w *Writer[B]) transact(steps []*step[B]) {
	t := &transaction[B]{writer: w, steps: steps}
	defer func() { // also if the goroutine is being ended
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
		w.handOver(len(steps)) // first: the next one writes while these are told and go on
		for _, s := range steps {
			s.outcome <- t.outcome(s)
		}
		clear(steps) // their array lives on under those who wait
	}()
	t.run()
}

// handOver starts the next transaction, after one of n steps.
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

// gather takes the waiting steps, to share a commit, once no more are about to come. If
// many come all the time, and it has not enough, it waits for about as many as there were.
// Steps whose context has ended by now get its error.
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
