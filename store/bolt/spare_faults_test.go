package bolt

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// TestEachCommitRunsTwice has the first commit of steps fail for want of pages, half-way: what they
// have left in memory must not show when they run again.
func TestEachCommitRunsTwice(t *testing.T) {
	if testing.Short() || testbubble.Raced {
		t.Skip("the whole of storetest once more: runs without -short, and without the race detector")
	}
	failed := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := Open(filepath.Join(t.TempDir(), "storage.db"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		s.writer.Around(func(commit func() error) error {
			if n++; n%3 != 1 { // one that fails is followed by the one that makes room
				return commit()
			}
			// Pages that are free are taken, and given back.
			s.db.AllocSize, s.db.MaxSize = 0, 1
			err := commit()
			if s.db.AllocSize, s.db.MaxSize = allocSize, 0; err == nil {
				n--
			} else if !errors.Is(err, bbolterrors.ErrMaxSizeReached) {
				t.Error(err)
			}
			failed++
			return err
		})
		return s
	})
	if failed < 100 {
		t.Errorf("%d commits failed", failed)
	}
}

// TestKilledWhileShortening purges a file and publishes to it, and opens it as a kill leaves it
// in each commit: before the meta page is written, and after.
func TestKilledWhileShortening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 2500)
	metas := 2 * s.spare.pageSize
	spared := 0
	commits := 0
	s.writer.Around(func(commit func() error) error {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if err := commit(); err != nil {
			return err
		}
		if commits++; commits%3 > 0 {
			return nil
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if spareInKilled(t, after) > 0 {
			spared++
		}
		copy(after[:metas], before)
		spareInKilled(t, after)
		return nil
	})
	purgeEverything(t, s)
	publishFrom(t, s, 2500, 4000)
	if t.Logf("%d commits, %d with spare pages", commits, spared); spared < 5 {
		t.Errorf("%d commits with spare pages", spared)
	}
}

// spareInKilled opens a file and uses it, and returns how many pages are spare.
func spareInKilled(t *testing.T, file []byte) int {
	path := filepath.Join(t.TempDir(), "killed.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Error(err)
	}
	s, err := Open(path)
	if err != nil {
		t.Error(err)
		return 0
	}
	state := spareOf(t, s)
	if _, err := s.Enqueue(context.Background(), spareEvent(9999)); err != nil {
		t.Error(err)
	}
	spareOf(t, s)
	if err := errors.Join(s.Close(), os.Remove(path)); err != nil {
		t.Error(err)
	}
	return state.spare
}

// TestALargeStepWithSparePages: what has no place among all that is spare is stored all the same.
func TestALargeStepWithSparePages(t *testing.T) {
	s, _ := newPurged(t)
	before := spareOf(t, s)
	value := bytes.Repeat([]byte{7}, (before.spare+before.listed+100)*s.spare.pageSize)
	runs := 0
	err := s.writer.Run(t.Context(), func(b *batch) error {
		runs++
		return b.Put(bucketMeta, []byte("large"), value)
	})
	if err != nil || runs < 2 || runs > maxTries+1 {
		t.Errorf("it ran %d times: %v", runs, err)
	}
	if after := spareOf(t, s); after.size <= before.size {
		t.Errorf("before %+v, after %+v", before, after)
	}
	publishFrom(t, s, 6000, 6200)
	spareOf(t, s)
}

// TestAReaderWithSparePages: while a reader needs all that is freed, steps are done, and afterwards
// the list becomes short again.
func TestAReaderWithSparePages(t *testing.T) {
	s, _ := newPurged(t)
	before := spareOf(t, s)
	reader, err := s.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	for next := 6000; next < 6400; next += 20 {
		publishFrom(t, s, next, next+20)
		now := time.Now().Add(time.Second)
		if _, err := s.Purge(t.Context(), webhooks.Purge{Payloads: now, Attempts: now, EventIDs: now, Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	publishFrom(t, s, 6400, 7600)
	t.Logf("before %+v, with a reader %+v", before, spareOf(t, s))
	if extents := reader.Bucket(bucketSpare).Stats(); extents.InlineBucketN+extents.BucketN-1 != before.extents {
		t.Errorf("the reader sees other pages by now: %+v", extents)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 70 { // it does not try each time
		purgeEverything(t, s)
	}
	if state := spareOf(t, s); state.listed >= s.spare.perPage() {
		t.Errorf("after a reader: %+v", state)
	}
}

// TestSparePagesOfOtherSizes purges files of other page sizes.
func TestSparePagesOfOtherSizes(t *testing.T) {
	for _, size := range []int{1 << 10, 8 << 10} {
		path := filepath.Join(t.TempDir(), "storage.db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: size})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		publishFrom(t, s, 0, 5000)
		purgeEverything(t, s)
		publishFrom(t, s, 5000, 5400)
		purgeEverything(t, s)
		state := spareOf(t, s)
		if s.spare.pageSize != size || state.spare == 0 || state.listed >= s.spare.perPage() {
			t.Errorf("pages of %d bytes: %+v", s.spare.pageSize, state)
		}
		t.Logf("pages of %d bytes: %+v", s.spare.pageSize, state)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
