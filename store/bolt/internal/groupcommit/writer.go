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

// A Batch is the state that the steps of one transaction share.
type Batch interface {
	// Flush writes the changes that the steps have collected in memory. It is called before the
	// commit.
	Flush() error
}

// A Writer commits steps. Steps that wait at the same time are committed together (group commit).
// Each transaction runs in its own goroutine, which then starts the goroutine of the next
// transaction; an idle Writer has none. No step runs in its caller's goroutine, so a step that
// exits its goroutine stops neither the caller nor the Writer.
type Writer[B Batch] struct {
	db     *bbolt.DB
	config Config[B]

	// applied is closed when the AfterCommit functions of the last commit have run.
	applied atomic.Pointer[chan struct{}]

	fault atomic.Pointer[error] // set when the Writer halts

	// interrupted is the number of consecutive commits interrupted by signals. Only the current
	// transaction may use it.
	interrupted int

	mu      sync.Mutex
	waiting []*step[B]
	leading bool // a transaction is running or about to start
	crowd   int  // recent number of steps per commit
	closed  bool
	idle    chan struct{} // set by Close if steps are left; closed when all of them are committed

	here   chan struct{} // closed when the number of waiting steps reaches wanted; nil while gather does not wait
	wanted int
}

// A Config has the functions that a Writer calls.
type Config[B Batch] struct {
	// Begin returns the batch of a new transaction; only one batch exists at a time.
	Begin func(*Tx) B

	// Commit makes a transaction durable, as [bbolt.Tx.Commit] does.
	Commit func(*bbolt.Tx) error

	// Ended is called after each transaction that ran steps, before the callers get results and
	// before the next transaction. If done is false, the transaction was not committed: values read
	// in it may never become visible. If the Writer is halted, however, the transaction may have
	// been committed.
	Ended func(done bool)

	// Committed is called after each commit, before the callers get results. Default: none.
	Committed func(steps int, took time.Duration, err error)
}

// New returns a Writer for the file.
func New[B Batch](db *bbolt.DB, config Config[B]) *Writer[B] {
	return &Writer[B]{db: db, config: config}
}

// errNotDone is the error of a step whose outcome was not determined.
var errNotDone = errors.New("the step did not run")

// A step is one atomic change. It is done only if its transaction succeeds; see
// [transaction.outcome].
type step[B Batch] struct {
	ctx     context.Context
	alone   bool // the step must have its own transaction
	do      func(B) error
	own     error      // result of do in the current transaction
	outcome chan error // receives exactly one value
}

func newStep[B Batch](ctx context.Context, do func(B) error) *step[B] {
	return &step[B]{ctx: ctx, do: do, own: errNotDone, outcome: make(chan error, 1)}
}

// Run commits a step and returns its error. do may run several times, each time in a new
// transaction. If it returns an error, it must do so before it writes anything, unless the file
// fails; otherwise the other steps of the transaction have to run again.
//
// If ctx ends before the step has become part of a transaction, nothing happens and Run returns
// the context's error. After that point, Run waits for the outcome.
func (w *Writer[B]) Run(ctx context.Context, do func(B) error) error {
	return w.run(newStep(ctx, do))
}

// RunAlone is like Run, but in a transaction without other steps. Use it for a step whose commit
// is likely to fail.
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

// add queues a step. It returns an error if the Writer accepts no steps.
func (w *Writer[B]) add(s *step[B]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refuses(); err != nil {
		return err
	}
	if w.waiting = append(w.waiting, s); w.here != nil && len(w.waiting) >= w.wanted {
		close(w.here)
		w.here = nil
	}
	if !w.leading {
		w.leading = true
		go w.lead()
	}
	return nil
}

// refuses returns an error if the Writer accepts no steps. w.mu must be held.
func (w *Writer[B]) refuses() error {
	if w.closed {
		return store.ErrClosed
	}
	return w.Halted()
}

// Ready returns nil if the Writer accepts steps, or the error if it is closed or halted.
func (w *Writer[B]) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refuses()
}

// withdraw removes a step from the queue. It returns false if the step has already become part of
// a transaction.
func (w *Writer[B]) withdraw(s *step[B]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.waiting, s)
	if i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
	}
	return i >= 0
}

// Close rejects new steps, and waits until all waiting steps are committed.
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

// Applied waits until the AfterCommit functions have run for every commit that readers could see at
// the time of the call, or until ctx ends. Readers may see a commit before its AfterCommit
// functions run; the difference is at most the duration of a sync.
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
