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

	"github.com/storageapi/storageapi/internal/boltfault"
)

var (
	bucket  = []byte("bucket")
	errBad  = errors.New("bad")
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC} // the error that bbolt returns
)

type testBatch struct{ *Tx }

func (testBatch) Flush() error { return nil }

// open returns a Writer for a new file, and the number of transactions that the Writer has
// reported as not done.
func open(t *testing.T, disk *boltfault.Disk) (w *Writer[testBatch], undone *int) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "storage.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(bucket); return err }); err != nil {
		t.Fatal(err)
	}
	undone = new(int)
	w = New(db, Config[testBatch]{
		Begin:  func(tx *Tx) testBatch { return testBatch{tx} },
		Commit: disk.Commit,
		Ended: func(done bool) {
			if !done {
				*undone++
			}
		},
	})
	t.Cleanup(func() {
		w.Close()
		_ = db.Close()
	})
	return w, undone
}

// The test runs good steps in one transaction with bad steps, which fail before writing, fail after
// writing, panic, or end their goroutine.
func TestRun_SomeStepsOfACommitFail_OthersCommit(t *testing.T) {
	w, undone := open(t, new(boltfault.Disk))
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
	for _, err := range boltfault.Together(t.Context(), w.Run,
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
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"first", "last"}, done); diff != "" {
		t.Errorf("AfterCommit functions run (-want +got):\n%s", diff)
	}
	if *undone != 4 {
		t.Errorf("%d transactions rolled back, want 4", *undone)
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

// A failed commit fails all its steps. This includes steps with an error of their own, because that
// error may result from another step's changes, which no reader will see.
func TestCommit_Fails_FailsAllSteps(t *testing.T) {
	var disk boltfault.Disk
	w, _ := open(t, &disk)
	disk.Around(func(func() error) error { return errFull })
	outcomes := boltfault.Together(t.Context(), w.Run,
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
			t.Errorf("step %d: err = %v, want %v", i, err, errFull)
		}
	}
	disk.Around(nil)
	if err := w.Run(t.Context(), func(b testBatch) error { return b.Put(bucket, []byte("b"), nil) }); err != nil {
		t.Errorf("step after the failed commit: %v", err)
	}
}

// The test ends the context of a step that waits for other steps.
func TestAdd_ContextEnded_StepDoesNotRun(t *testing.T) {
	w, _ := open(t, new(boltfault.Disk))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := newStep(ctx, func(testBatch) error { t.Error("step ran"); return nil })
	if err := w.add(ended); err != nil {
		t.Fatal(err)
	}
	if err := <-ended.outcome; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want %v", err, context.Canceled)
	}
}

// The test interrupts a sync by a signal before readers see the commit. The steps must run again,
// and the Writer must not halt.
func TestCommit_SyncInterrupted_StepsRunAgain(t *testing.T) {
	var disk boltfault.Disk
	w, undone := open(t, &disk)
	commits, runs := 0, 0
	disk.Around(func(commit func() error) error {
		if commits++; commits <= 3 {
			return syscall.EINTR // nothing is committed
		}
		return commit()
	})
	err := w.Run(t.Context(), func(b testBatch) error { runs++; return b.Put(bucket, []byte("a"), []byte("b")) })
	if err != nil || runs != 4 || *undone != 3 || w.Halted() != nil {
		t.Errorf("Run = %v after %d runs, %d rolled back, Halted = %v; want nil after 4 runs, 3 rolled back, not halted", err, runs, *undone, w.Halted())
	}
	disk.Around(func(func() error) error { return syscall.EINTR })
	if err := w.Run(t.Context(), func(b testBatch) error { return b.Put(bucket, []byte("c"), nil) }); err == nil || w.Halted() == nil {
		t.Errorf("always interrupted: Run = %v, Halted = %v; want errors", err, w.Halted())
	}
}

// The test checks that the steps are done and on disk, and that the Writer halts, because bbolt has
// rolled the commit back in memory.
func TestCommit_SyncInterruptedOnceVisible_SucceedsAndWriterHalts(t *testing.T) {
	var disk boltfault.Disk
	w, undone := open(t, &disk)
	disk.Around(func(commit func() error) error { return errors.Join(commit(), syscall.EINTR) })
	applied := false
	err := w.Run(t.Context(), func(b testBatch) error {
		b.AfterCommit(func() { applied = true })
		return b.Put(bucket, []byte("a"), []byte("b"))
	})
	if err != nil || !applied || *undone != 0 || w.Halted() == nil {
		t.Errorf("Run = %v, applied = %v, %d rolled back, Halted = %v; want it done, and halted", err, applied, *undone, w.Halted())
	}
}
