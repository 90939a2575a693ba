package groupcommit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
)

// A Batch is what the steps of one transaction share.
type Batch interface {
	// Flush writes what steps have left to be written once for all of them. It is
	// called before the commit.
	Flush() error
}

// A Writer commits steps, those that wait at the same time together (group commit).
// Each transaction is a goroutine, which starts the next one: there is none while
// there is nothing to write. No step runs in its caller's goroutine, so a callback that
// ends its goroutine ends neither another caller nor the commits.
type Writer[B Batch] struct {
	db    *bbolt.DB
	begin func(*Tx) B
	ended func(done bool)

	committed func(steps int, took time.Duration, err error) // nil: none

	around atomic.Pointer[func(commit func() error) error] // of tests, see Around

	// applied belongs to the last commit. It is closed once what AfterCommit was given has run.
	applied atomic.Pointer[chan struct{}]

	fault atomic.Pointer[error] // why nothing is written any more

	interrupted int // commits in a row, by signals; of the transaction under way

	mu      sync.Mutex
	waiting []*step[B]
	leading bool // a transaction is under way, or about to be
	crowd   int  // how many steps there were recently
	closed  bool
	idle    chan struct{} // closed when all is committed, once closed is set; nil: it was already

	here   chan struct{} // closed when wanted steps are waiting; nil: gather does not wait
	wanted int
}

// New returns a Writer to the file. begin returns the batch of a transaction that begins;
// there is one at a time. ended, called between transactions and before the steps are told, says
// that one has ended in which steps have run. Not done: what was read in it may never have
// happened; if the Writer is halted, it may have.
func New[B Batch](db *bbolt.DB, begin func(*Tx) B, ended func(done bool)) *Writer[B] {
	return &Writer[B]{db: db, begin: begin, ended: ended}
}

// Observe has committed called after each commit from now on, before its steps are told. It is
// called before the first one.
func (w *Writer[B]) Observe(committed func(steps int, took time.Duration, err error)) {
	w.committed = committed
}

// errNotDone is the error of a step whose outcome was never determined.
var errNotDone = errors.New("the step was not done")

// A step is one atomic change. Nothing but the success of its transaction makes it
// done; see [transaction.outcome].
type step[B Batch] struct {
	ctx     context.Context
	alone   bool // shares its transaction with no other
	do      func(B) error
	own     error      // what do returned in the transaction under way
	outcome chan error // is sent one value, however it ends
}

func newStep[B Batch](ctx context.Context, do func(B) error) *step[B] {
	return &step[B]{ctx: ctx, do: do, own: errNotDone, outcome: make(chan error, 1)}
}

// Run commits a step and returns its error. A step may run more than once, each
// time in another transaction; it returns an error either before it writes, and
// the others go on, or because the file failed.
//
// If ctx ends before the step is part of a transaction, nothing happens and Run
// returns the context's error. From then on Run waits for the outcome.
func (w *Writer[B]) Run(ctx context.Context, do func(B) error) error {
	return w.run(newStep(ctx, do))
}

// RunAlone is Run for a step that has a transaction of its own, since its commit may fail
// where those of others would not.
func (w *Writer[B]) RunAlone(ctx context.Context, do func(B) error) error {
	s := newStep(ctx, do)
	s.alone = true
	return w.run(s)
}

func (w *Writer[B]) run(s *step[B]) error {
	ctx := s.ctx
	if err := ctx.Err(); err != nil {
		return err
	}
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

// RunTogether commits steps in one transaction, as if they had come at the same time, and
// returns the error of each. It is for tests of what steps of a batch see of each other.
func (w *Writer[B]) RunTogether(ctx context.Context, list ...func(B) error) []error {
	steps, outcomes := make([]*step[B], len(list)), make([]error, len(list))
	for i, do := range list {
		steps[i] = newStep(ctx, do)
	}
	err := w.add(steps...)
	for i, s := range steps {
		if outcomes[i] = err; err == nil {
			outcomes[i] = <-s.outcome
		}
	}
	return outcomes
}

// add has steps committed together, or returns why they cannot be.
func (w *Writer[B]) add(steps ...*step[B]) error {
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
func (w *Writer[B]) refuses() error {
	if w.closed {
		return store.ErrClosed
	}
	return w.Halted()
}

// Ready returns why no step is taken any more: the Writer is closed or halted. Nil: steps
// are taken.
func (w *Writer[B]) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refuses()
}

// withdraw takes a step back, unless it is part of a transaction already.
func (w *Writer[B]) withdraw(s *step[B]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.waiting, s)
	if i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
	}
	return i >= 0
}

// Close lets waiting steps be committed, and refuses later ones.
func (w *Writer[B]) Close() {
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

// Applied waits until what AfterCommit was given has run for every commit that a reader of the
// file could see when it was called, or until ctx ends. Readers see a commit up to one sync
// before that.
func (w *Writer[B]) Applied(ctx context.Context) error {
	applied := w.applied.Load()
	if applied == nil {
		return nil
	}
	select {
	case <-*applied:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
