package bolt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func openTemp(tb testing.TB) *Store {
	s, err := Open(filepath.Join(tb.TempDir(), "storage.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

var errBad = errors.New("bad")

// TestFailingStepsTakeNobodyDown runs good steps together with ones that fail
// before writing, after writing, and by panicking, all in one transaction.
func TestFailingStepsTakeNobodyDown(t *testing.T) {
	s := openTemp(t)
	write := func(name string) func(*batch) error {
		return func(b *batch) error { return b.put(bucketMeta, []byte(name), []byte("1")) }
	}
	var done []string
	then := func(name string, fail error) func(*batch) error {
		return func(b *batch) error {
			b.done = append(b.done, func() { done = append(done, name) })
			if err := write(name)(b); err != nil {
				return err
			}
			return fail
		}
	}
	steps := []*step{
		{do: then("first", nil)},
		{do: func(*batch) error { return errBad }},
		{do: then("dirty", errBad)},
		{do: func(b *batch) error { _ = write("panicked")(b); panic("boom") }},
		{do: then("last", nil)},
	}
	for _, step := range steps {
		step.ctx = t.Context()
	}
	s.writer.commit(steps)

	var got []string
	for _, step := range steps {
		got = append(got, fmt.Sprint(step.err))
	}
	want := []string{"<nil>", "bad", "bad", "panic: boom", "<nil>"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors: %s", diff)
	}
	if diff := cmp.Diff([]string{"first", "last"}, done); diff != "" {
		t.Errorf("done: %s", diff)
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for name, stored := range map[string]bool{"first": true, "last": true, "dirty": false, "panicked": false} {
		if got := tx.Bucket(bucketMeta).Get([]byte(name)) != nil; got != stored {
			t.Errorf("%s stored: %v, want %v", name, got, stored)
		}
	}
}

// TestFailedCommitIsEverybodysError: what a step says may rest on what another
// has written and nobody will see.
func TestFailedCommitIsEverybodysError(t *testing.T) {
	s := openTemp(t)
	steps := []*step{
		{ctx: t.Context(), do: func(b *batch) error { return b.put(bucketMeta, []byte("a"), []byte("1")) }},
		{ctx: t.Context(), do: func(b *batch) error {
			if b.get(bucketMeta, []byte("a")) != nil {
				return errBad
			}
			return nil
		}},
		{ctx: t.Context(), do: func(b *batch) error { // the commit is going to fail
			b.tx.OnCommit(func() { panic("damaged") })
			return nil
		}},
	}
	s.writer.commit(steps)
	for i, step := range steps {
		if step.err == nil || errors.Is(step.err, errBad) {
			t.Errorf("step %d: %v", i, step.err)
		}
	}
	if err := s.writer.run(t.Context(), func(b *batch) error { return b.put(bucketMeta, []byte("b"), nil) }); err != nil {
		t.Errorf("the next step: %v", err)
	}
}

func TestEndedContextIsNotRun(t *testing.T) {
	s := openTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	steps := []*step{{ctx: ctx, do: func(*batch) error { t.Error("run"); return nil }}}
	s.writer.commit(steps)
	if !errors.Is(steps[0].err, context.Canceled) {
		t.Errorf("err = %v", steps[0].err)
	}
}
