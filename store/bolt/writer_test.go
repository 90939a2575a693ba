package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/boltfault"
)

func openTemp(tb testing.TB) *Store {
	s, err := Open(filepath.Join(tb.TempDir(), "storage.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

var (
	errBad  = errors.New("bad")
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC} // as bbolt returns it
)

// together commits steps in one batch and returns what came of each.
func together(tb testing.TB, s *Store, list ...func(*batch) error) (outcomes []error) {
	tb.Helper()
	var steps []*step
	for _, do := range list {
		steps = append(steps, newStep(tb.Context(), do))
	}
	if err := s.writer.add(steps...); err != nil {
		tb.Fatal(err)
	}
	for _, step := range steps {
		outcomes = append(outcomes, <-step.outcome)
	}
	return outcomes
}

// TestFailingStepsTakeNobodyDown runs good steps together with ones that fail
// before writing, after writing, by panicking, and by ending their goroutine, all in one
// transaction.
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
	var got []string
	for _, err := range together(t, s,
		then("first", nil),
		func(*batch) error { return errBad },
		then("dirty", errBad),
		func(b *batch) error { _ = write("panicked")(b); panic("boom") },
		func(*batch) error { runtime.Goexit(); return nil },
		func(b *batch) error { _ = write("ended")(b); runtime.Goexit(); return nil },
		then("last", nil),
	) {
		got = append(got, fmt.Sprint(err))
	}
	want := []string{"<nil>", "bad", "bad", "panic: boom", errEnded.Error(), errEnded.Error(), "<nil>"}
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
	for name, stored := range map[string]bool{"first": true, "last": true, "dirty": false, "panicked": false, "ended": false} {
		if got := tx.Bucket(bucketMeta).Get([]byte(name)) != nil; got != stored {
			t.Errorf("%s stored: %v, want %v", name, got, stored)
		}
	}
}

// TestFailedCommitIsEverybodysError: what a step says may rest on what another
// has written and nobody will see.
func TestFailedCommitIsEverybodysError(t *testing.T) {
	s := openTemp(t)
	boltfault.Around(s, func(func() error) error { return errFull })
	outcomes := together(t, s,
		func(b *batch) error { return b.put(bucketMeta, []byte("a"), []byte("1")) },
		func(b *batch) error {
			if b.get(bucketMeta, []byte("a")) != nil {
				return errBad
			}
			return nil
		},
		func(*batch) error { return nil },
	)
	for i, err := range outcomes {
		if !errors.Is(err, errFull) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	boltfault.Around(s, nil)
	if err := s.writer.run(t.Context(), func(b *batch) error { return b.put(bucketMeta, []byte("b"), nil) }); err != nil {
		t.Errorf("the next step: %v", err)
	}
}

// TestEndedContextIsNotRun: the context of a step may end while it waits for others.
func TestEndedContextIsNotRun(t *testing.T) {
	s := openTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := newStep(ctx, func(*batch) error { t.Error("run"); return nil })
	if err := s.writer.add(ended); err != nil {
		t.Fatal(err)
	}
	if err := <-ended.outcome; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}
