package bolt

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
)

const (
	maxBatch = 1024 // steps that share a commit

	// While so many steps come at a time, a commit that does not have enough waits for
	// about as many as come, so long at most: commits of few cost them more.
	minCrowd  = 32
	enough    = 256
	maxGather = 2 * time.Millisecond
)

// A writer commits steps, those that wait at the same time together. There is no
// goroutine to it: whoever comes first commits for all who have come by then,
// and hands over to one of those who came meanwhile.
type writer struct {
	db     *bbolt.DB
	undone func() // called when steps turn out not to have happened

	draft draft // of the batch under way

	// landing is of the last commit: closed once that is done with, while readers of
	// the file may see it before.
	landing atomic.Pointer[chan struct{}]

	mu      sync.Mutex
	waiting []*step
	led     bool // somebody commits
	crowd   int  // how many were there of late

	here   chan struct{} // closed when wanted steps are waiting; nil: nobody waits for that
	wanted int
}

// A step is one atomic change.
type step struct {
	ctx  context.Context
	do   func(*batch) error
	err  error
	turn chan bool // true: lead; false: done
}

// run commits a step and returns its error. A step may run more than once, each
// time in another transaction; it returns an error either before it writes, and
// the others go on, or because the file failed.
func (w *writer) run(ctx context.Context, do func(*batch) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := &step{ctx: ctx, do: do, turn: make(chan bool, 1)}
	w.mu.Lock()
	if w.waiting = append(w.waiting, s); w.here != nil && len(w.waiting) >= w.wanted {
		close(w.here)
		w.here = nil
	}
	lead := !w.led
	w.led = true
	w.mu.Unlock()
	if lead || <-s.turn {
		w.lead(s)
	}
	return s.err
}

// lead commits what is waiting, the leader's own step first, and hands over.
func (w *writer) lead(own *step) {
	steps := w.gather()
	w.commit(steps)

	// The next leader first: it writes while the others are told and go on.
	w.mu.Lock()
	w.crowd = max(len(steps)+len(w.waiting), w.crowd*7/8)
	if w.led = len(w.waiting) > 0; w.led {
		w.waiting[0].turn <- true
	}
	w.mu.Unlock()
	for _, s := range steps {
		if s != own {
			s.turn <- false
		}
	}
	clear(steps) // their array lives on under those who wait
}

// gather takes what is waiting to share a commit, once nobody more is about to come. If
// many come all the time, and it has not enough, it waits for about as many as there were.
func (w *writer) gather() []*step {
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
	steps := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	return steps
}

// commit runs the steps in one transaction. A step that fails after it has
// written takes the transaction down: the others run again in another.
func (w *writer) commit(steps []*step) {
	for {
		culprit, err := w.try(steps)
		if culprit == nil {
			for _, s := range steps {
				// Also a step that failed by itself may have done so because of
				// what another had written.
				if err != nil && s.ctx.Err() == nil {
					s.err = err
				}
			}
			return
		}
		rest := make([]*step, 0, len(steps)-1)
		for _, s := range steps {
			if s != culprit {
				s.err = nil
				rest = append(rest, s)
			}
		}
		steps = rest
	}
}

// try runs the steps in one transaction and commits it. It returns the step that
// took it down, if one did, or else the error of the commit.
func (w *writer) try(steps []*step) (culprit *step, err error) {
	tx, err := w.db.Begin(true)
	if err != nil {
		return nil, closed(err)
	}
	defer func() {
		if culprit != nil || err != nil {
			w.undone()
		}
	}()
	defer recovered(&err)
	defer func() { _ = tx.Rollback() }() // does nothing after Commit

	b := newBatch(tx, &w.draft)
	changed := false
	for _, s := range steps {
		b.dirty = false
		before := len(b.done)
		if s.err = s.attempt(b); s.err != nil {
			if b.dirty {
				return s, nil
			}
			b.done = b.done[:before]
		}
		changed = changed || b.dirty
	}
	if !changed {
		b.finish()
		return nil, nil
	}
	if err := b.flush(); err != nil {
		return nil, fmt.Errorf("write %s: %w", w.db.Path(), err)
	}
	landing := make(chan struct{})
	w.landing.Store(&landing)
	defer close(landing)
	id := tx.ID()
	if err := tx.Commit(); err != nil {
		// Whoever reads the file may see the transaction nevertheless, if only
		// the last sync failed; the queue must follow what they see.
		if w.seen(id) {
			b.finish()
		}
		return nil, fmt.Errorf("commit to %s: %w", w.db.Path(), err)
	}
	b.finish()
	return nil, nil
}

// landed waits until the queue knows of all that readers of the file could see before,
// or until ctx is done.
func (w *writer) landed(ctx context.Context) error {
	landing := w.landing.Load()
	if landing == nil {
		return nil
	}
	select {
	case <-*landing:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seen reports whether the transaction is what a reader sees.
func (w *writer) seen(id int) bool {
	tx, err := w.db.Begin(false)
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	return tx.ID() >= id
}

// attempt runs the step.
func (s *step) attempt(b *batch) (err error) {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	defer recovered(&err)
	return s.do(b)
}

// recovered makes an error of a panic. bbolt panics when it meets damage in the
// file, and one damaged page must not end the host.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
	}
}
