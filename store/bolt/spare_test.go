package bolt

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// spareState is how the pages of a file are used.
type spareState struct {
	size    int // pages of the file
	listed  int // in the list of free pages
	extents int
	spare   int // pages of the extents
}

// spareOf returns how the pages are used, and checks that nothing is wrong with the file.
func spareOf(t *testing.T, s *Store) (state spareState) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Fatal(err)
		}
		state.size = int(tx.Size()) / s.spare.pageSize
		l, ok := s.spare.list(tx.ID())
		if !ok {
			t.Fatal("the list was not found")
		}
		state.listed = l.count
		if int(l.end) != state.size {
			t.Fatalf("the file has %d pages, its meta page says %d", state.size, l.end)
		}
		if extents := tx.Bucket(bucketSpare); extents != nil {
			return extents.ForEachBucket(func(key []byte) error {
				state.extents++
				pages := extentPages(key)
				if used := extents.Bucket(key).Stats().LeafAlloc / s.spare.pageSize; used != pages {
					t.Errorf("an extent of %d pages uses %d", pages, used)
				}
				state.spare += pages
				return nil
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if kept := int(s.spare.kept.Load()); kept != state.spare {
		t.Errorf("%d pages are spare, and taken for %d", state.spare, kept)
	}
	return state
}

// publishFrom publishes events number from to number to by 64 at a time.
func publishFrom(t *testing.T, s *Store, from, to int) {
	t.Helper()
	var wg sync.WaitGroup
	for p := range 64 {
		wg.Go(func() {
			for i := from + p; i < to; i += 64 {
				if _, err := s.Enqueue(context.Background(), spareEvent(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func spareEvent(i int) webhooks.EncodedEvent {
	return webhooks.EncodedEvent{
		ID: fmt.Sprintf("evt_%026d", i), Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: time.Now(), Body: make([]byte, 2048),
	}
}

func purgeEverything(tb testing.TB, s *Store) {
	tb.Helper()
	for more, n := true, 0; more; n++ {
		var err error
		now := time.Now().Add(time.Second)
		if more, err = s.Purge(tb.Context(), webhooks.Purge{Payloads: now, Attempts: now, EventIDs: now, Limit: 1000}); err != nil {
			tb.Fatal(err)
		}
		if n > 100_000 {
			tb.Fatal("there is always more to purge")
		}
	}
}

// newPurged returns a store whose file was filled and purged.
func newPurged(t *testing.T) (*Store, string) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	publishFrom(t, s, 0, 6000)
	purgeEverything(t, s)
	return s, path
}

// TestTheListOfFreePagesIsShort purges a file, publishes by one and by many, and does so again. At no time
// does a commit by itself write a list of more than a page, and the file does not grow while it
// has free pages.
func TestTheListOfFreePagesIsShort(t *testing.T) {
	s, _ := newPurged(t)
	purged := spareOf(t, s)
	t.Logf("%+v", purged)
	if purged.listed >= s.spare.perPage() || purged.spare < 1000 {
		t.Errorf("after a purge: %+v", purged)
	}
	next := 6000
	for round := range 4 {
		for range 50 {
			if _, err := s.Enqueue(t.Context(), spareEvent(next)); err != nil {
				t.Fatal(err)
			}
			next++
		}
		if state := spareOf(t, s); round == 0 && state.listed >= s.spare.perPage() {
			t.Errorf("after events one by one: %+v", state)
		}
		publishFrom(t, s, next, next+700)
		next += 700
		if state := spareOf(t, s); state.size > purged.size {
			t.Errorf("round %d: the file grew: %+v", round, state)
		}
	}
	t.Logf("%+v", spareOf(t, s))
	purgeEverything(t, s)
	if again := spareOf(t, s); again.listed >= s.spare.perPage() || again.size > purged.size {
		t.Errorf("after another purge: %+v", again)
	}
}

// TestWhatIsPurgedIsFree purges nine tenths of a file: as much of it is free, also when it is opened again.
func TestWhatIsPurgedIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 5400)
	time.Sleep(2 * time.Millisecond)
	border := time.Now()
	publishFrom(t, s, 5400, 6000)
	for more := true; more; {
		if more, err = s.Purge(t.Context(), webhooks.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(s *Store) {
		t.Helper()
		state := spareOf(t, s)
		free := int(s.spare.free()) / s.spare.pageSize
		if free != state.spare+state.listed || free < state.size*8/10 || free > state.size*95/100 {
			t.Errorf("%d pages are free: %+v", free, state)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path); err != nil {
		t.Fatal(err)
	}
	check(s)
	free := s.spare.free()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(path)
	if err != nil || len(report.Problems) > 0 || report.FreeBytes != free {
		t.Errorf("%d bytes are free: verified %+v, %v", free, report, err)
	}
	small := filepath.Join(t.TempDir(), "small.db")
	info, err := Compact(small, path)
	if err != nil || info.After > info.Before/5 {
		t.Errorf("compacted: %+v, %v", info, err)
	}
	if report, err := Verify(small); err != nil || len(report.Problems) > 0 || report.FreeBytes > 16<<12 {
		t.Errorf("compacted: %+v, %v", report, err)
	}
}

// TestSparePagesAreUsedUp fills a purged file until it grows: nothing is spare then.
func TestSparePagesAreUsedUp(t *testing.T) {
	s, _ := newPurged(t)
	purged := spareOf(t, s)
	for next := 6000; ; next += 500 {
		publishFrom(t, s, next, next+500)
		state := spareOf(t, s)
		if state.size == purged.size {
			if next > 20_000 {
				t.Fatalf("the file takes no space: %+v", state)
			}
			continue
		}
		if state.spare > 0 {
			t.Errorf("it grew while it had spare pages: %+v", state)
		}
		return
	}
}

// TestReadersHoldUpSparing: what a reader may still need is free, but cannot be used. Purges go on,
// commits go on, and afterwards the list becomes short.
func TestReadersHoldUpSparing(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 4500) // bbolt's map of the file has room for more: it is not replaced while there are readers
	reader, err := s.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	purgeEverything(t, s)
	for i := range 100 {
		if _, err := s.Enqueue(t.Context(), spareEvent(4500+i)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("with a reader: %+v", spareOf(t, s))
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

// TestCommitsFailWithSparePages: a full disk costs a failed commit nothing that depends on what is
// spare, and what failed is not done.
func TestCommitsFailWithSparePages(t *testing.T) {
	s, path := newPurged(t)
	before := spareOf(t, s)
	for _, fail := range []func(commit func() error) error{
		func(func() error) error { return errFull },
		func(commit func() error) error { panic("in a commit") },
	} {
		s.writer.Around(fail)
		for i := range 10 {
			if _, err := s.Enqueue(t.Context(), spareEvent(6000+i)); err == nil {
				t.Error("a commit that failed was acknowledged")
			}
		}
		if state := spareOf(t, s); state != before {
			t.Errorf("after failed commits %+v, before %+v", state, before)
		}
	}
	s.writer.Around(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if state := spareOf(t, s); state.spare != before.spare || state.size != before.size {
		t.Errorf("opened again %+v, before %+v", state, before)
	}
}

// TestShorteningFails: the purge is done all the same, and the next one shortens the list.
func TestShorteningFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 6000)
	s.writer.Around(func(commit func() error) error {
		if s.db.AllocSize == 0 && s.db.MaxSize > 0 {
			return errFull
		}
		return commit()
	})
	purgeEverything(t, s)
	if state := spareOf(t, s); state.spare != 0 || state.listed < 1000 {
		t.Errorf("with a full disk: %+v", state)
	}
	s.writer.Around(nil)
	purgeEverything(t, s)
	if state := spareOf(t, s); state.spare == 0 || state.listed >= s.spare.perPage() {
		t.Errorf("later: %+v", state)
	}
}
