package bolt

import (
	"errors"
	"fmt"
)

// errEnded is the error of a step whose callback ended its goroutine.
var errEnded = errors.New("a callback ended its goroutine (runtime.Goexit)")

// A transaction is one attempt to commit steps together.
type transaction struct {
	writer  *writer
	steps   []*step
	running *step // the one whose do has not returned
	failed  *step // one that failed after it had written

	done bool  // what the steps did is in the file for good, and what they say is true
	err  error // why it is not
}

// outcome returns what came of a step.
func (t *transaction) outcome(s *step) error {
	switch {
	case t.done:
		return s.own
	case t.err != nil:
		// Also if the step failed by itself: it may have done so because of what
		// another had written.
		return t.err
	}
	return errNotDone
}

// culprit returns the step that took the transaction down, if one did, and the others.
func (t *transaction) culprit() (culprit *step, rest []*step) {
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

// run runs the steps and commits what they have written.
func (t *transaction) run() {
	w := t.writer
	if t.err = w.broken(); t.err != nil || len(t.steps) == 0 {
		return
	}
	tx, err := w.db.Begin(true)
	if err != nil {
		t.err = closed(err)
		return
	}
	defer func() {
		if !t.done {
			w.undone()
		}
	}()
	defer recovered(&t.err)
	defer func() { _ = tx.Rollback() }() // does nothing after Commit

	b := newBatch(tx, &w.draft)
	changed := false
	for _, s := range t.steps {
		b.dirty = false
		before := len(b.done)
		t.running = s
		s.own = s.attempt(b)
		t.running = nil
		if s.own != nil {
			if b.dirty {
				t.failed = s
				return
			}
			b.done = b.done[:before]
		}
		changed = changed || b.dirty
	}
	if !changed {
		b.finish()
	} else if t.err = w.commit(b); t.err != nil {
		return
	}
	t.done = true // nothing else makes a step done
}

// attempt runs the step.
func (s *step) attempt(b *batch) (err error) {
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
