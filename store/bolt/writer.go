package bolt

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
)

const (
	maxBatch = 1024 // steps that share a commit

	// While so many steps come at a time, a commit that does not have enough waits for
	// about as many as come, so long at most: commits of few cost them more.
	minCrowd  = 32
	enough    = 256
	maxGather = 2 * time.Millisecond
)

// A writer commits steps, those that wait at the same time together (group commit).
// Each transaction is a goroutine, which begins the next one: there is none while
// nobody writes. No step runs in its caller's goroutine, so a callback that ends its
// goroutine ends neither another caller nor the commits.
type writer struct {
	db     *bbolt.DB
	undone func() // called when steps turn out not to have happened

	around atomic.Pointer[func(commit func() error) error] // of tests, see [boltfault.Around]

	draft draft // of the batch under way

	// landing is of the last commit: closed once that is done with, while readers of
	// the file may see it before.
	landing atomic.Pointer[chan struct{}]

	fault atomic.Pointer[error] // why nothing is written any more

	mu      sync.Mutex
	waiting []*step
	leading bool // a transaction is under way, or about to be
	crowd   int  // how many were there of late
	closed  bool
	idle    chan struct{} // closed when all is committed, once closed is set; nil: it was already

	here   chan struct{} // closed when wanted steps are waiting; nil: nobody waits for that
	wanted int
}

// errNotDone is the error of a step of which nobody said what came of it.
var errNotDone = errors.New("the step was not done")

// A step is one atomic change. Nothing but the success of its transaction makes it
// done; see [transaction.outcome].
type step struct {
	ctx     context.Context
	do      func(*batch) error
	own     error      // what do returned in the transaction under way
	outcome chan error // is sent one value, however it ends
}

func newStep(ctx context.Context, do func(*batch) error) *step {
	return &step{ctx: ctx, do: do, own: errNotDone, outcome: make(chan error, 1)}
}

// run commits a step and returns its error. A step may run more than once, each
// time in another transaction; it returns an error either before it writes, and
// the others go on, or because the file failed.
//
// If ctx ends before the step is part of a transaction, nothing happens and run
// returns the context's error. From then on run waits for what comes of it.
func (w *writer) run(ctx context.Context, do func(*batch) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := newStep(ctx, do)
	if err := w.add(s); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return <-s.outcome
	}
	select {
	case err := <-s.outcome:
		return err
	case <-ctx.Done():
		if w.withdraw(s) {
			return ctx.Err()
		}
		return <-s.outcome
	}
}

// add has steps committed together, or returns why they cannot be.
func (w *writer) add(steps ...*step) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refuses(); err != nil {
		return err
	}
	if w.waiting = append(w.waiting, steps...); w.here != nil && len(w.waiting) >= w.wanted {
		close(w.here)
		w.here = nil
	}
	if !w.leading {
		w.leading = true
		go w.lead()
	}
	return nil
}

// refuses returns why no step is taken any more, or nil. w.mu is held.
func (w *writer) refuses() error {
	if w.closed {
		return store.ErrClosed
	}
	return w.broken()
}

// ready is refuses for those who do not hold w.mu.
func (w *writer) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refuses()
}

// withdraw takes a step back, unless it is part of a transaction already.
func (w *writer) withdraw(s *step) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.waiting, s)
	if i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
	}
	return i >= 0
}

// close lets what waits be committed, and refuses what comes from then on.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	if w.leading && w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// lead commits what is waiting.
func (w *writer) lead() { w.transact(w.gather()) }

// transact commits the steps in one transaction. It goes on whatever they do: one that
// fails after it has written, or ends its goroutine, takes the transaction down, and
// the others run again in another.
func (w *writer) transact(steps []*step) {
	t := &transaction{writer: w, steps: steps}
	defer func() { // also if the goroutine is being ended
		if culprit, rest := t.culprit(); culprit != nil {
			culprit.outcome <- culprit.own
			go w.transact(rest)
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

// handOver begins the next transaction, after one of n steps.
func (w *writer) handOver(n int) {
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

// gather takes what is waiting to share a commit, once nobody more is about to come. If
// many come all the time, and it has not enough, it waits for about as many as there were.
// Steps whose context has ended by now are told so.
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
	return slices.DeleteFunc(steps, func(s *step) bool {
		err := s.ctx.Err()
		if err != nil {
			s.outcome <- err
		}
		return err != nil
	})
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
