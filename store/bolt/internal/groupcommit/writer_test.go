package groupcommit

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
	"go.etcd.io/bbolt"
)

var (
	bucket  = []byte("bucket")
	errBad  = errors.New("bad")
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC} // as bbolt returns it
)

// A testBatch has nothing to flush.
type testBatch struct{ *Tx }

func (testBatch) Flush() error { return nil }

// open returns a Writer to a new file, and how often it said that steps were undone.
func open(t *testing.T) (w *Writer[testBatch], undone *int) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "storage.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(bucket); return err }); err != nil {
		t.Fatal(err)
	}
	undone = new(int)
	w = New(db, func(tx *Tx) testBatch { return testBatch{tx} }, func(done bool) {
		if !done {
			*undone++
		}
	})
	t.Cleanup(func() {
		w.Close()
		_ = db.Close()
	})
	return w, undone
}

// TestFailingStepsLeaveOthersAlone runs good steps together with ones that fail
// before writing, after writing, by panicking, and by ending their goroutine, all in one
// transaction.
func TestFailingStepsLeaveOthersAlone(t *testing.T) {
	w, undone := open(t)
	write := func(name string) func(testBatch) error {
		return func(b testBatch) error { return b.Put(bucket, []byte(name), []byte("1")) }
	}
	var done []string
	then := func(name string, fail error) func(testBatch) error {
		return func(b testBatch) error {
			b.AfterCommit(func() { done = append(done, name) })
			if err := write(name)(b); err != nil {
				return err
			}
			return fail
		}
	}
	var got []string
	for _, err := range w.RunTogether(t.Context(),
		then("first", nil),
		func(testBatch) error { return errBad },
		then("dirty", errBad),
		func(b testBatch) error { _ = write("panicked")(b); panic("boom") },
		func(testBatch) error { runtime.Goexit(); return nil },
		func(b testBatch) error { _ = write("ended")(b); runtime.Goexit(); return nil },
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
	if *undone != 4 {
		t.Errorf("%d transactions were undone, want 4", *undone)
	}
	tx, err := w.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for name, stored := range map[string]bool{"first": true, "last": true, "dirty": false, "panicked": false, "ended": false} {
		if got := tx.Bucket(bucket).Get([]byte(name)) != nil; got != stored {
			t.Errorf("%s stored: %v, want %v", name, got, stored)
		}
	}
}

// TestFailedCommitFailsAllSteps: what a step says may rest on what another has written
// and no reader will see.
func TestFailedCommitFailsAllSteps(t *testing.T) {
	w, _ := open(t)
	w.Around(func(func() error) error { return errFull })
	outcomes := w.RunTogether(t.Context(),
		func(b testBatch) error { return b.Put(bucket, []byte("a"), []byte("1")) },
		func(b testBatch) error {
			if b.Get(bucket, []byte("a")) != nil {
				return errBad
			}
			return nil
		},
		func(testBatch) error { return nil },
	)
	for i, err := range outcomes {
		if !errors.Is(err, errFull) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	w.Around(nil)
	if err := w.Run(t.Context(), func(b testBatch) error { return b.Put(bucket, []byte("b"), nil) }); err != nil {
		t.Errorf("the next step: %v", err)
	}
}

// TestEndedContextIsNotRun: the context of a step may end while it waits for others.
func TestEndedContextIsNotRun(t *testing.T) {
	w, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := newStep(ctx, func(testBatch) error { t.Error("run"); return nil })
	if err := w.add(ended); err != nil {
		t.Fatal(err)
	}
	if err := <-ended.outcome; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

// TestCommit_SyncInterrupted_IsRepeated: a signal interrupts the sync of what a commit has written before readers see it. The steps run
// again, and nothing is halted.
func TestCommit_SyncInterrupted_IsRepeated(t *testing.T) {
	w, undone := open(t)
	commits, runs := 0, 0
	w.Around(func(commit func() error) error {
		if commits++; commits <= 3 {
			return syscall.EINTR // nothing is committed
		}
		return commit()
	})
	err := w.Run(t.Context(), func(b testBatch) error { runs++; return b.Put(bucket, []byte("a"), []byte("b")) })
	if err != nil || runs != 4 || *undone != 3 || w.Halted() != nil {
		t.Errorf("Run = %v, after %d runs, %d of them undone; halted: %v; want nil after 4 runs, 3 undone", err, runs, *undone, w.Halted())
	}
	w.Around(func(func() error) error { return syscall.EINTR })
	if err := w.Run(t.Context(), func(b testBatch) error { return b.Put(bucket, []byte("c"), nil) }); err == nil || w.Halted() == nil {
		t.Errorf("interrupted for ever: Run = %v, halted: %v; want errors", err, w.Halted())
	}
}

// TestCommit_SyncInterruptedOnceReadersSeeIt_IsDone: the steps are done, and on the disk. Nothing more is written, as bbolt has undone the
// commit in memory.
func TestCommit_SyncInterruptedOnceReadersSeeIt_IsDone(t *testing.T) {
	w, undone := open(t)
	w.Around(func(commit func() error) error { return errors.Join(commit(), syscall.EINTR) })
	applied := false
	err := w.Run(t.Context(), func(b testBatch) error {
		b.AfterCommit(func() { applied = true })
		return b.Put(bucket, []byte("a"), []byte("b"))
	})
	if err != nil || !applied || *undone != 0 || w.Halted() == nil {
		t.Errorf("Run = %v, applied %v, %d undone, halted: %v; want it done, and halted", err, applied, *undone, w.Halted())
	}
}
