package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// TestEventIDs publishes under IDs of all kinds, some of them twice, purges, and goes on with
// the file as a kill leaves it after many of the commits: an event is found by its ID, and found
// again if it is published again, until its ID is purged.
func TestEventIDs(t *testing.T) {
	const perCommit, commits = 64, 150
	testbubble.Run(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "storage.db")
		s := openFewIDs(t, path)
		defer func() { _ = s.Close() }()
		ids, written, dropped := newTestIDs(), 0, 0
		for commit := range commits {
			before := s.ids.run
			steps := make([]func(*batch) error, perCommit)
			for i := range steps {
				steps[i] = ids.publish(t, s)
			}
			if err := errors.Join(together(t, s, steps...)...); err != nil {
				t.Fatal(err)
			}
			written += int(s.ids.run - before)
			time.Sleep(time.Minute)
			if commit%10 == 9 {
				rows := runsInFile(t, s)
				ids.purge(t, s, time.Now().Add(-40*time.Minute))
				dropped += len(rows) - len(runsInFile(t, s))
			}
			if commit%4 == 0 {
				ids.check(t, path)
			}
			if commit%37 == 36 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = openFewIDs(t, path)
			}
		}
		if written < 10 || dropped < 5 {
			t.Errorf("%d runs were written and %d dropped: the test tests too little", written, dropped)
		}
	})
}

// openFewIDs opens a file of which runs have few IDs.
func openFewIDs(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s.ids.perRun = 500
	return s
}

// runsInFile returns the runs of which the file has rows.
func runsInFile(t *testing.T, s *Store) (runs []uint32) {
	t.Helper()
	for _, row := range idRows(t, s) {
		if len(runs) == 0 || runs[len(runs)-1] != row.run {
			runs = append(runs, row.run)
		}
	}
	return runs
}

// An idRow is a row of bucketEventIDs.
type idRow struct {
	run     uint32
	header  bool
	entries []record.IDEntry
}

func idRows(t *testing.T, s *Store) (rows []idRow) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketEventIDs).ForEach(func(k, value []byte) (err error) {
			row := idRow{run: idRunOf(k), header: len(k) == idHeaderSize}
			if !row.header {
				row.entries, err = record.AppendIDEntries(nil, value)
			}
			rows = append(rows, row)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// testIDs are those that were published, and what is to be found of them.
type testIDs struct {
	random *rand.Rand
	at     map[string]time.Time // when each was published first, unless it is purged
	list   []string             // those published, purged ones as well
}

func newTestIDs() *testIDs {
	return &testIDs{random: rand.New(rand.NewPCG(1, 2)), at: make(map[string]time.Time)}
}

// publish returns a step that publishes a new id, or now and then one from before.
func (ids *testIDs) publish(t *testing.T, s *Store) func(*batch) error {
	id := ""
	switch n := len(ids.list); ids.random.IntN(8) {
	case 0, 1:
		id = "evt_" + ulid.MustNew(ulid.Now(), ids).String()
	case 2:
		id = fmt.Sprintf("order-%d", n)
	case 3:
		id = fmt.Sprintf("%08x-%04x-7%03x-8000-%012x", time.Now().UnixMilli()>>16, time.Now().UnixMilli()&0xffff, n&0xfff, n)
	case 4, 5:
		if n > 0 {
			id = ids.list[ids.random.IntN(n)]
			break
		}
		fallthrough
	default:
		id = fmt.Sprintf("%016x-%016x", ids.random.Uint64(), ids.random.Uint64())
	}
	return ids.publishID(t, s, id)
}

// publishID returns a step that publishes the id.
func (ids *testIDs) publishID(t *testing.T, s *Store, id string) func(*batch) error {
	_, known := ids.at[id]
	if !known {
		ids.list, ids.at[id] = append(ids.list, id), time.Now()
	}
	e := newTestEvent(s, webhooks.EncodedEvent{ID: id, Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: time.Now()})
	return func(b *batch) error {
		if _, isNew, err := s.enqueue(b, e, ""); err != nil || isNew == known {
			t.Errorf("%s: published anew: %t, %v; known: %t", id, isNew, err, known)
		}
		return nil
	}
}

// Read makes testIDs the entropy of ULIDs.
func (ids *testIDs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(ids.random.Uint32())
	}
	return len(p), nil
}

// purge forgets the ids of events before the time.
func (ids *testIDs) purge(t *testing.T, s *Store, before time.Time) {
	for more := true; more; {
		var err error
		more, err = s.Purge(t.Context(), webhooks.Purge{Payloads: before, Attempts: before, EventIDs: before, DedupKeys: before, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
	}
	maps.DeleteFunc(ids.at, func(_ string, at time.Time) bool { return at.Before(before) })
}

// check opens a copy of the file.
func (ids *testIDs) check(t *testing.T, path string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "killed.db")
	if err := os.WriteFile(killed, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(killed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for range 300 {
		id := ids.list[ids.random.IntN(len(ids.list))]
		want := webhooks.ErrNotFound
		if _, known := ids.at[id]; known {
			want = nil
		}
		if _, err := s.EventDeliveries(t.Context(), "acct", id); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", id, err, want)
		}
		if _, err := s.EventDeliveries(t.Context(), "acct2", id); !errors.Is(err, webhooks.ErrNotFound) {
			t.Fatalf("%s of another account: %v", id, err)
		}
	}
	var publish []func(*batch) error
	for fork := ids.fork(); len(publish) < 64; {
		publish = append(publish, fork.publish(t, s))
	}
	if err := errors.Join(together(t, s, publish...)...); err != nil {
		t.Fatal(err)
	}
}

// fork returns a copy.
func (ids *testIDs) fork() *testIDs {
	return &testIDs{random: ids.random, at: maps.Clone(ids.at), list: slices.Clone(ids.list)}
}

// publishRandom publishes so many random ids at a time.
func (ids *testIDs) publishRandom(t *testing.T, s *Store, count int) {
	t.Helper()
	var steps []func(*batch) error
	for range count {
		steps = append(steps, ids.publishID(t, s, fmt.Sprintf("%016x-%016x", ids.random.Uint64(), ids.random.Uint64())))
	}
	if err := errors.Join(together(t, s, steps...)...); err != nil {
		t.Fatal(err)
	}
}

// TestEventIDs_OpenedOften_RunsAreWritten opens a file again and again, each time for fewer IDs than a run
// has: what is in memory and read by Open stays bounded.
func TestEventIDs_OpenedOften_RunsAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	ids := newTestIDs()
	for range 40 {
		s := openFewIDs(t, path)
		for range 10 {
			ids.publishRandom(t, s, 10)
			<-sorted(s)
		}
		if n := len(s.ids.newer.entries) + len(s.ids.writing.entries); n > 2*s.ids.perRun {
			t.Errorf("%d IDs are in memory", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ids.check(t, path)
}

// sorted returns what is closed once a run is sorted.
func sorted(s *Store) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if sorting := s.ids.sorting; sorting != nil {
			sorting <- <-sorting
		}
	}()
	return done
}

// TestEventIDs_CutShort_WrittenAgain: rows of a run that was not whole when the file was closed are
// not looked at, and are deleted by a purge.
func TestEventIDs_CutShort_WrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	ids := newTestIDs()
	s := openFewIDs(t, path)
	s.ids.perRun = 2000
	ids.publishRandom(t, s, 2000)
	<-sorted(s)
	ids.publishRandom(t, s, 1)
	if rows := idRows(t, s); len(rows) == 0 || slices.ContainsFunc(rows, func(r idRow) bool { return r.header }) {
		t.Fatalf("there are %d rows, of which some are headers: the test tests nothing", len(rows))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFewIDs(t, path)
	defer func() { _ = s.Close() }()
	ids.check(t, path)
	for s.ids.run < 2 {
		ids.publishRandom(t, s, 50)
		<-sorted(s)
	}
	ids.purge(t, s, time.Now().Add(-time.Hour))
	if runs := runsInFile(t, s); slices.Contains(runs, 0) || !slices.Contains(runs, 1) {
		t.Errorf("there are rows of the runs %v, want 1, and not 0, which was cut short", runs)
	}
	ids.check(t, path)
}

// TestEventIDs_SameKey_ToldApart publishes IDs whose keys are the same, in memory, in a run that is being
// written, and in the file.
func TestEventIDs_SameKey_ToldApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s := openFewIDs(t, path)
	defer func() { _ = s.Close() }()
	publish := func(id string) (isNew bool) {
		t.Helper()
		e := newTestEvent(s, webhooks.EncodedEvent{ID: id, Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: time.Now()})
		e.key = 7
		err := errors.Join(together(t, s, func(b *batch) (err error) {
			_, isNew, err = s.enqueue(b, e, "")
			return err
		})...)
		if err != nil {
			t.Fatal(err)
		}
		return isNew
	}
	others, all := newTestIDs(), 0
	for s.ids.run < 2 {
		for range 2 + 2*record.MaxIDEntries { // more than a row has
			if id := fmt.Sprint("id-", all); !publish(id) || publish(id) {
				t.Fatalf("%s is not published once", id)
			}
			all++
		}
		others.publishRandom(t, s, 100)
		<-sorted(s)
	}
	for i := range all {
		if id := fmt.Sprint("id-", i); publish(id) {
			t.Fatalf("%s is published twice", id)
		}
	}
}

// TestEventIDs_ErasedAndPublishedAgain: an event of an erased account is new when it is published again, wherever
// the old one's ID stands; and then it is known.
func TestEventIDs_ErasedAndPublishedAgain(t *testing.T) {
	for name, runs := range map[string]uint32{"in memory": 0, "in a run": 1} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			s := openFewIDs(t, path)
			ids := newTestIDs() // of the account acct
			for ids.publishRandom(t, s, 100); s.ids.run < runs; ids.publishRandom(t, s, 100) {
				<-sorted(s)
			}
			for more := true; more; {
				var err error
				if _, more, err = s.EraseAccount(t.Context(), "acct", 1000); err != nil {
					t.Fatal(err)
				}
			}
			old := ids.list
			clear(ids.at)
			for range 2 {
				var steps []func(*batch) error
				for _, id := range old {
					steps = append(steps, ids.publishID(t, s, id))
				}
				if err := errors.Join(together(t, s, steps...)...); err != nil {
					t.Fatal(err)
				}
				<-sorted(s)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if report, err := Verify(path); err != nil || report.Err() != nil {
				t.Error(err, report.Err())
			}
			ids.check(t, path)
		})
	}
}

// TestEventIDs_DamagedRow_OthersArePublished: a row that cannot be read fails events whose IDs belong into it, and no others.
func TestEventIDs_DamagedRow_OthersArePublished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s := openFewIDs(t, path)
	ids := newTestIDs()
	for s.ids.run < 1 {
		ids.publishRandom(t, s, 100)
		<-sorted(s)
	}
	var damaged []record.IDEntry
	var above uint64 // the last key of the row before
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketEventIDs).Cursor()
		k, value := c.Last()
		damaged, _ = record.AppendIDEntries(nil, value)
		before, _ := c.Prev()
		above = binary.BigEndian.Uint64(before[idHeaderSize:])
		return tx.Bucket(bucketEventIDs).Put(k, []byte{record.Version, 0xff})
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFewIDs(t, path)
	defer func() { _ = s.Close() }()
	for i := range 200 {
		e := newTestEvent(s, webhooks.EncodedEvent{ID: fmt.Sprint("new-", i), Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: time.Now()})
		key := e.key
		err := errors.Join(together(t, s, func(b *batch) error { _, _, err := s.enqueue(b, e, ""); return err })...)
		if belongs := key > above && key <= damaged[len(damaged)-1].Key; (err != nil) != belongs {
			t.Errorf("an event with the key %x: %v; the row has keys from %x on", key, err, above)
		}
	}
	e := newTestEvent(s, webhooks.EncodedEvent{ID: "in the row", Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: time.Now()})
	e.key = damaged[0].Key
	if err := errors.Join(together(t, s, func(b *batch) error { _, _, err := s.enqueue(b, e, ""); return err })...); err == nil {
		t.Error("an event whose ID belongs into the damaged row is published")
	}
}

// TestVerify_DamagedIDs_Named changes one row at a time of those that find events by their IDs.
func TestVerify_DamagedIDs_Named(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "storage.db")
	s := openFewIDs(t, whole)
	for ids := newTestIDs(); s.ids.run < 2; ids.publishRandom(t, s, 100) {
		<-sorted(s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	header := func(k []byte) bool { return len(k) == idHeaderSize }
	row := func(k []byte) bool { return len(k) == idRowSize }
	for name, test := range map[string]struct {
		of     func(k []byte) bool
		change func(value []byte) []byte // nil: it is removed
		want   string
	}{
		"a row that is removed":     {row, func([]byte) []byte { return nil }, "event_ids does not have event"},
		"a header that is removed":  {header, func([]byte) []byte { return nil }, "event_ids does not have event"},
		"a row that is cut":         {row, func(value []byte) []byte { return value[:len(value)-1] }, cannotBeRead},
		"a header of other numbers": {header, func(value []byte) []byte { return append(slices.Clone(value[8:]), value[:8]...) }, "event_ids"},
		"a header that is cut":      {header, func(value []byte) []byte { return value[:8] }, "event_ids"},
		"a row without entries":     {row, func([]byte) []byte { return record.EncodeIDEntries(nil) }, "event_ids"},
		"a number of another run": {row, func(value []byte) []byte {
			entries, _ := record.AppendIDEntries(nil, value)
			entries[0].Number += 1000
			return record.EncodeIDEntries(entries)
		}, "event_ids does not have event"},
		"a number of another event": {row, func(value []byte) []byte {
			entries, _ := record.AppendIDEntries(nil, value)
			entries[0].Number, entries[1].Number = entries[1].Number, entries[0].Number
			return record.EncodeIDEntries(entries)
		}, "event_ids does not have event"},
		"a key of another row": {row, func(value []byte) []byte {
			entries, _ := record.AppendIDEntries(nil, value)
			entries[len(entries)-1].Key = math.MaxUint64
			return record.EncodeIDEntries(entries)
		}, "event_ids does not have event"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "damaged.db")
			file, err := os.ReadFile(whole)
			if err := errors.Join(err, os.WriteFile(path, file, 0o600)); err != nil {
				t.Fatal(err)
			}
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucketEventIDs)
				c := b.Cursor()
				k, value := c.First()
				for !test.of(k) {
					k, value = c.Next()
				}
				if value = test.change(slices.Clone(value)); value == nil {
					return b.Delete(slices.Clone(k))
				}
				return b.Put(slices.Clone(k), value)
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			report, err := Verify(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(report.Problems); !strings.Contains(got, test.want) {
				t.Errorf("Verify = %.300s, want %q", got, test.want)
			}
		})
	}
}

// TestIDFilter finds each key that a run has, and takes few others for known, also of a run that is dropped.
func TestIDFilter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := eventIDs{run: 3}
	var entries []record.IDEntry
	for n := range uint64(idsPerRun) {
		entries = append(entries, record.IDEntry{Key: random.Uint64(), Number: n})
	}
	s.filter(2).add(2, entries)
	runsOf := func(key uint64) []uint32 { found := s.find(key); return found.runs }
	if runs := runsOf(entries[0].Key); runs != nil {
		t.Fatalf("a run that is not whole is looked at: %v", runs)
	}
	s.filter(2).has(2)
	for _, e := range entries {
		if !slices.Equal(runsOf(e.Key), []uint32{2}) {
			t.Fatalf("the key %x is not found", e.Key)
		}
	}
	wrong := 0
	for range 100_000 {
		wrong += len(runsOf(random.Uint64()))
	}
	if wrong > 300 { // by the formula 110
		t.Errorf("%d of 100,000 other keys are taken for known", wrong)
	}
	s.drop(2)
	if runs := runsOf(entries[0].Key); runs != nil {
		t.Errorf("a run that is dropped is looked at: %v", runs)
	}
}
