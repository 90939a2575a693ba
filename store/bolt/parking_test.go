package bolt

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/boltfault"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A spareState describes how the pages of a file are used.
type spareState struct {
	size    int // pages of the file
	listed  int // pages in the free list
	extents int
	spare   int // pages in parked extents
}

// spareOf returns how the pages of the file are used, and checks that the file is sound.
func spareOf(t *testing.T, s *engine) (state spareState) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Fatal(err)
		}
		state.size = int(tx.Size()) / s.db.Info().PageSize
		l, ok := pagefile.ReadFreeList(s.file, s.db.Info().PageSize, tx.ID())
		if !ok {
			t.Fatal("the list was not found")
		}
		state.listed = l.Pages
		if int(l.End) != state.size {
			t.Fatalf("the file has %d pages, its meta page says %d", state.size, l.End)
		}
		if extents := tx.Bucket(schema.Spare); extents != nil {
			return extents.ForEachBucket(func(key []byte) error {
				state.extents++
				pages := parking.ExtentPages(key)
				if used := extents.Bucket(key).Stats().LeafAlloc / s.db.Info().PageSize; used != pages {
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
	if kept := int(s.parking.FreeBytes())/s.db.Info().PageSize - state.listed; kept != state.spare {
		t.Errorf("%d pages are spare, and taken for %d", state.spare, kept)
	}
	return state
}

// listPage returns the number of free pages that one page of the free list can hold.
func (s *engine) listPage() int { return pagefile.FreeListPage(s.db.Info().PageSize) }

// atMostParked returns the maximum number of pages that may be in the free list after parking: one
// page of the list full of numbers, less than one extent, and the pages freed by the last commits.
func (s *engine) atMostParked() int { return s.listPage() + parking.MaxExtent + 64 }

// publishFrom publishes the events numbered from, from+1, … to-1, 64 at a time.
func publishFrom(t *testing.T, s *engine, from, to int) {
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

func spareEvent(i int) driver.EncodedEvent {
	return driver.EncodedEvent{
		ID: fmt.Sprintf("evt_%026d", i), Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: make([]byte, 2048),
	}
}

func purgeEverything(tb testing.TB, s *engine) {
	tb.Helper()
	for more, n := true, 0; more; n++ {
		var err error
		now := time.Now().Add(time.Second)
		if more, err = s.Purge(tb.Context(), driver.Purge{Payloads: now, Attempts: now, EventIDs: now, Limit: 1000}); err != nil {
			tb.Fatal(err)
		}
		if n > 100_000 {
			tb.Fatal("there is always more to purge")
		}
	}
}

// newPurged returns a store whose file was filled and purged, and the path of the file.
func newPurged(t *testing.T, options ...Option) (*engine, string) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := open(path, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	publishFrom(t, s, 0, 6000)
	purgeEverything(t, s)
	return s, path
}

// The free list must be short after a purge, and must stay short while events are published one at
// a time. The file must hardly grow as long as the events fit into free pages.
func TestParking_AfterPurge_KeepsListShort(t *testing.T) {
	s, _ := newPurged(t)
	purged := spareOf(t, s)
	t.Logf("%+v", purged)
	if purged.listed > s.atMostParked() || purged.spare < 1000 {
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
		if state := spareOf(t, s); state.listed > 2*s.listPage() {
			t.Errorf("round %d, after events one by one: %+v", round, state)
		}
		publishFrom(t, s, next, next+700)
		next += 700
		if state := spareOf(t, s); state.size > purged.size*105/100 {
			t.Errorf("round %d: the file grew: %+v", round, state)
		}
	}
	t.Logf("%+v", spareOf(t, s))
	purgeEverything(t, s)
	if again := spareOf(t, s); again.listed > s.atMostParked() || again.size > purged.size*105/100 {
		t.Errorf("after another purge: %+v", again)
	}
}

// The test purges nine tenths of a file. FreeBytes must return the right number, even after the
// file is opened again.
func TestParking_FreeBytes_CountsParkedAndListed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 5400)
	time.Sleep(2 * time.Millisecond)
	border := time.Now()
	publishFrom(t, s, 5400, 6000)
	for more := true; more; {
		if more, err = s.Purge(t.Context(), driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(s *engine) {
		t.Helper()
		state := spareOf(t, s)
		free := int(s.parking.FreeBytes()) / s.db.Info().PageSize
		if free != state.spare+state.listed || free < state.size*8/10 || free > state.size*95/100 {
			t.Errorf("%d pages are free: %+v", free, state)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = open(path); err != nil {
		t.Fatal(err)
	}
	check(s)
	free := s.parking.FreeBytes()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(path)
	if err != nil || len(report.Problems) > 0 || report.FreeBytes != free {
		t.Errorf("%d bytes are free: verified %+v, %v", free, report, err)
	}
	small := filepath.Join(t.TempDir(), "small.db")
	before, after, err := CompactFile(small, path)
	if err != nil || after > before/5 {
		t.Errorf("compacted: %d bytes of %d, %v", after, before, err)
	}
	if report, err := Verify(small); err != nil || len(report.Problems) > 0 || report.FreeBytes > 16<<12 {
		t.Errorf("compacted: %+v, %v", report, err)
	}
}

// The test refills a purged file with the same amount of data. Afterwards, no page may be parked,
// and the file must hardly have grown.
func TestParking_Refill_UsesParkedPages(t *testing.T) {
	s, _ := newPurged(t)
	purged := spareOf(t, s)
	publishFrom(t, s, 6000, 11_800)
	state := spareOf(t, s)
	t.Logf("purged %+v, refilled %+v", purged, state)
	if state.size > purged.size*105/100 || state.spare > purged.size/10 {
		t.Errorf("purged %+v, refilled %+v", purged, state)
	}
}

// While a reader is open, the free pages that it may need must not be parked, and attempts to park
// them must not make the file grow. Purges and commits must continue, and the free list must become
// short after the reader has ended.
func TestParking_ReaderOpen_WaitsForIt(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 4500) // so few that bbolt need not map the file again
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
	before := spareOf(t, s)
	for range 20 {
		s.park(t.Context(), false)
	}
	if after := spareOf(t, s); after.size > before.size || after.spare > 0 {
		t.Errorf("parking beside a reader: before %+v, after %+v", before, after)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 1<<parking.MaxSkip + 10 {
		purgeEverything(t, s)
	}
	if state := spareOf(t, s); state.listed > s.atMostParked() {
		t.Errorf("after a reader: %+v", state)
	}
}

// A failed commit neither parks nor frees pages.
func TestParking_CommitFails_ChangesNothing(t *testing.T) {
	var disk boltfault.Disk
	s, path := newPurged(t, disk.Option)
	before := spareOf(t, s)
	for _, fail := range []func(commit func() error) error{
		func(func() error) error { return errFull },
		func(commit func() error) error { panic("in a commit") },
	} {
		disk.Around(fail)
		for i := range 10 {
			if _, err := s.Enqueue(t.Context(), spareEvent(6000+i)); err == nil {
				t.Error("a commit that failed was acknowledged")
			}
		}
		if state := spareOf(t, s); state != before {
			t.Errorf("after failed commits %+v, before %+v", state, before)
		}
	}
	disk.Around(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if state := spareOf(t, s); state.spare != before.spare || state.size != before.size {
		t.Errorf("opened again %+v, before %+v", state, before)
	}
}

// The test checks that a purge succeeds even if parking fails, and that the next purge parks.
func TestParking_DiskFull_ParksLater(t *testing.T) {
	var disk boltfault.Disk
	s, err := open(filepath.Join(t.TempDir(), "storage.db"), disk.Option)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publishFrom(t, s, 0, 6000)
	purge := driver.Purge{Payloads: time.Now().Add(time.Second), Attempts: time.Now().Add(time.Second), EventIDs: time.Now().Add(time.Second), Limit: 1000}
	for more := true; more; {
		if more, err = s.purgeStep(t.Context(), purge); err != nil {
			t.Fatal(err)
		}
	}
	disk.Around(func(func() error) error { return errFull })
	if s.park(t.Context(), false) {
		t.Error("parking on a full disk reports success")
	}
	disk.Around(nil)
	if state := spareOf(t, s); state.spare != 0 || state.listed < 1000 {
		t.Errorf("with a full disk: %+v", state)
	}
	purgeEverything(t, s)
	if state := spareOf(t, s); state.spare == 0 || state.listed > s.atMostParked() {
		t.Errorf("later: %+v", state)
	}
}

// During a purge, freed pages stay in the free list for a while. If they were parked at once, the
// extents would be too short for a value that takes many pages.
func TestParking_WithinPurge_LeavesPagesListed(t *testing.T) {
	s := openTemp(t)
	publishFrom(t, s, 0, 6000)
	end := time.Now().Add(time.Second)
	for more := true; more; {
		var err error
		if more, err = s.purgeStep(t.Context(), driver.Purge{Payloads: end, Attempts: end, EventIDs: end, Limit: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if state := spareOf(t, s); state.listed < 2*s.listPage() || state.listed > parking.KeptInPurge {
		t.Fatalf("coverage precondition failed: %+v", state)
	}
	if more := s.park(t.Context(), true); more || spareOf(t, s).spare > 0 {
		t.Errorf("within the purge: got more = %v, %+v, want nothing parked", more, spareOf(t, s))
	}
	if more := s.park(t.Context(), false); !more || spareOf(t, s).spare == 0 {
		t.Errorf("after it: got more = %v, %+v, want pages parked", more, spareOf(t, s))
	}
}
