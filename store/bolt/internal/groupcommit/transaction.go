package groupcommit

import (
	"errors"
	"fmt"
	"runtime/debug"

	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/store"
)

// errEnded is the error of a step that ended its goroutine.
var errEnded = errors.New("a callback ended its goroutine (runtime.Goexit)")

// A transaction is one attempt to commit several steps together.
type transaction[B Batch] struct {
	writer  *Writer[B]
	steps   []*step[B]
	running *step[B] // the step whose function has not returned
	failed  *step[B] // the step that failed after it had written

	done bool  // the steps' changes are committed and their results are valid
	err  error // why done is false
}

// outcome returns the error of a step.
func (t *transaction[B]) outcome(s *step[B]) error {
	switch {
	case t.done:
		return s.own
	case t.err != nil:
		// This also replaces the step's own error, which may result from changes by another step.
		return t.err
	}
	return errNotDone
}

// culprit returns the step that forced the rollback, or nil, and the other steps.
func (t *transaction[B]) culprit() (culprit *step[B], rest []*step[B]) {
	culprit = t.failed
	if t.running != nil {
		culprit = t.running
		culprit.own = errEnded
	}
	if culprit == nil {
		return nil, nil
	}
	for _, s := range t.steps {
		if s != culprit {
			s.own = errNotDone
			rest = append(rest, s)
		}
	}
	return culprit, rest
}

// again reports whether the steps must run again, because a signal interrupted the commit.
func (t *transaction[B]) again() bool { return !t.done && t.err == errInterrupted }

// run runs the steps and commits their changes.
func (t *transaction[B]) run() {
	// A damaged page may point outside the file: reading there panics.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := t.writer
	if t.err = w.Halted(); t.err != nil || len(t.steps) == 0 {
		return
	}
	bolt, err := w.db.Begin(true)
	if err != nil {
		if t.err = err; errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
			t.err = store.ErrClosed
		}
		return
	}
	defer func() { w.config.Ended(t.done) }()
	defer catchPanic(&t.err)
	defer func() { _ = bolt.Rollback() }() // has no effect after Commit

	tx := &Tx{Bolt: bolt}
	batch := w.config.Begin(tx)
	changed := false
	for _, s := range t.steps {
		tx.dirty = false
		before := len(tx.applied)
		t.running = s
		s.own = s.attempt(batch)
		t.running = nil
		if s.own != nil {
			if tx.dirty {
				t.failed = s
				return
			}
			tx.applied = tx.applied[:before]
		}
		changed = changed || tx.dirty
	}
	if !changed {
		tx.apply()
	} else if t.err = w.commit(tx, batch, len(t.steps)); t.err != nil {
		return
	}
	t.done = true // no other code marks steps as done
}

// attempt runs the step's function, and turns a panic into an error.
func (s *step[B]) attempt(batch B) (err error) {
	defer catchPanic(&err)
	return s.do(batch)
}

// catchPanic turns a panic into an error. bbolt panics on damage in the file, but one damaged page
// must not crash the host.
func catchPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
	}
}
