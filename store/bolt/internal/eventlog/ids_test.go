package eventlog_test

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

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// TestIDs publishes IDs of all kinds, some of them twice. Some commits are undone. The test also
// purges, and after many commits it opens the file in the state that a killed process would leave.
// Until its ID is purged, an event must be found by its ID, and recognized if it is published
// again.
func TestIDs(t *testing.T) {
	const perCommit, commits = 64, 150
	testbubble.Run(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "storage.db")
		l := openFewIDs(t, path)
		defer func() { _ = l.close() }()
		ids, written, dropped, left := newTestIDs(), 0, 0, 0
		for commit := range commits {
			steps := make([]func(*eventlog.Step) error, perCommit)
			for i := range steps {
				steps[i] = ids.publish(t, l)
			}
			if commit%5 == 1 { // the other steps run again without it
				steps = slices.Insert(steps, perCommit/2, publishAndFail(l, ids.randomID()))
			}
			if err := errors.Join(boltfault.Together(t.Context(), l.steps.Run, steps...)...); err != nil && !errors.Is(err, errStep) {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if commit%10 == 9 {
				runs := len(runsOf(t, l))
				ids.purge(t, l, time.Now().Add(-40*time.Minute))
				written += runs - left
				left = len(runsOf(t, l))
				dropped += runs - left
			}
			if commit%4 == 0 {
				ids.check(t, path)
			}
			if commit%37 == 36 {
				if err := l.close(); err != nil {
					t.Fatal(err)
				}
				l = openFewIDs(t, path)
			}
		}
		if written < 10 || dropped < 5 {
			t.Errorf("coverage precondition failed: %d runs were written and %d dropped", written, dropped)
		}
	})
}

var errStep = errors.New("this step fails")

// publishAndFail returns a step that publishes an event and then fails.
func publishAndFail(l *logFile, id string) func(*eventlog.Step) error {
	e := l.event("acct", id)
	return func(s *eventlog.Step) error {
		_, err := publish(s, e)
		return errors.Join(err, errStep)
	}
}

// openFewIDs opens a file with few IDs per run.
func openFewIDs(t *testing.T, path string) *logFile {
	t.Helper()
	l := openLog(t, path)
	l.writer.SetIDsPerRun(500)
	return l
}

// runsOf returns the runs in the file.
func runsOf(t *testing.T, l *logFile) (runs []uint64) {
	t.Helper()
	err := l.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(schema.EventIDs).ForEach(func(k, _ []byte) error {
			if run := eventlog.IDRunOf(k); !slices.Contains(runs, run) {
				runs = append(runs, run)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// testIDs holds the published IDs.
type testIDs struct {
	random *rand.Rand
	at     map[string]time.Time // time of the first publication, unless purged
	list   []string             // including purged ones
}

func newTestIDs() *testIDs {
	return &testIDs{random: rand.New(rand.NewPCG(1, 2)), at: make(map[string]time.Time)}
}

// publish returns a step that publishes a new ID or, sometimes, an older one.
func (ids *testIDs) publish(t *testing.T, l *logFile) func(*eventlog.Step) error {
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
		id = ids.randomID()
	}
	return ids.publishID(t, l, id)
}

func (ids *testIDs) randomID() string {
	return fmt.Sprintf("%016x-%016x", ids.random.Uint64(), ids.random.Uint64())
}

// publishID returns a step that publishes the ID.
func (ids *testIDs) publishID(t *testing.T, l *logFile, id string) func(*eventlog.Step) error {
	_, known := ids.at[id]
	if !known {
		ids.list, ids.at[id] = append(ids.list, id), time.Now()
	}
	e := l.event("acct", id)
	return func(s *eventlog.Step) error {
		if isNew, err := publish(s, e); err != nil || isNew == known {
			t.Errorf("publish %s: got new %t, %v; known before: %t", id, isNew, err, known)
		}
		return nil
	}
}

// Read makes testIDs a source of entropy for ULIDs.
func (ids *testIDs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(ids.random.Uint32())
	}
	return len(p), nil
}

// purge removes the IDs of events published before the given time.
func (ids *testIDs) purge(t *testing.T, l *logFile, before time.Time) {
	t.Helper()
	l.purge(t, before)
	maps.DeleteFunc(ids.at, func(_ string, at time.Time) bool { return at.Before(before) })
}

// check opens a copy of the file, and checks that it knows exactly the IDs that are not purged.
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
	l := openLog(t, killed)
	defer func() { _ = l.close() }()
	for range 300 {
		id := ids.list[ids.random.IntN(len(ids.list))]
		if _, want := ids.at[id]; l.knows(t, "acct", id) != want {
			t.Fatalf("%s is known: %t, want %t", id, !want, want)
		}
		if l.knows(t, "acct2", id) {
			t.Fatalf("%s of another account is known", id)
		}
	}
	var steps []func(*eventlog.Step) error
	for fork := ids.fork(); len(steps) < 64; {
		steps = append(steps, fork.publish(t, l))
	}
	l.run(t, steps...)
}

// fork returns a copy of the testIDs.
func (ids *testIDs) fork() *testIDs {
	return &testIDs{random: ids.random, at: maps.Clone(ids.at), list: slices.Clone(ids.list)}
}

// publishRandom publishes count random IDs in one commit.
func (ids *testIDs) publishRandom(t *testing.T, l *logFile, count int) {
	t.Helper()
	var steps []func(*eventlog.Step) error
	for range count {
		steps = append(steps, ids.publishID(t, l, ids.randomID()))
	}
	l.run(t, steps...)
}

// writeRuns publishes until the file has the given number of runs.
func (ids *testIDs) writeRuns(t *testing.T, l *logFile, runs int) {
	t.Helper()
	for range 100 {
		if len(runsOf(t, l)) >= runs {
			return
		}
		ids.publishRandom(t, l, 100)
	}
	t.Fatalf("the file has the runs %d, want %d runs", runsOf(t, l), runs)
}

// An ID published by a failed step remains unknown until another step has published it.
func TestIDs_CommitUndone_EventIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	l := openFewIDs(t, path)
	ids := newTestIDs()
	ids.publishRandom(t, l, 100)
	for range 3 {
		if err := l.steps.Run(t.Context(), publishAndFail(l, "evt")); !errors.Is(err, errStep) {
			t.Fatalf("got %v, want the step's error", err)
		}
	}
	if l.knows(t, "acct", "evt") {
		t.Error("the event of a failed step is known")
	}
	l.run(t, ids.publishID(t, l, "evt"), ids.publishID(t, l, "evt"))
	ids.publishRandom(t, l, 1000)
	if n := len(ids.list); l.writer.IDsInMemory() != n {
		t.Errorf("%d IDs are in memory, want %d", l.writer.IDsInMemory(), n)
	}
	ids.writeRuns(t, l, 1)
	ids.check(t, path)
}

// Readers find an event before its commit has returned.
func TestIDs_CommitNotApplied_ReadersFindEvent(t *testing.T) {
	l := openFewIDs(t, filepath.Join(t.TempDir(), "storage.db"))
	ids, found := newTestIDs(), 0
	l.disk.Around(func(commit func() error) error {
		err := commit()
		for _, id := range ids.list {
			if !l.knows(t, "acct", id) {
				t.Errorf("%s can be read, and is not found by its ID", id)
			}
			found++
		}
		return err
	})
	for range 12 { // a run is written meanwhile
		ids.publishRandom(t, l, 100)
	}
	if found == 0 || len(runsOf(t, l)) == 0 {
		t.Errorf("coverage precondition failed: %d events were looked up, and the file has the runs %d", found, runsOf(t, l))
	}
}

// The test opens a file again and again, and each time publishes fewer IDs than a run needs. The
// number of IDs in memory, which Open reads, must stay bounded.
func TestIDs_OpenedOften_RunsAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	ids := newTestIDs()
	for range 40 {
		l := openFewIDs(t, path)
		for range 10 {
			ids.publishRandom(t, l, 10)
		}
		if n := l.writer.IDsInMemory(); n > 1000 {
			t.Errorf("%d IDs are in memory, want 1000 at most", n)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
	ids.check(t, path)
}

// The test publishes different IDs with the same key: in memory, in a run that is being written,
// and in the file.
func TestIDs_SameKey_AreDistinguished(t *testing.T) {
	l := openFewIDs(t, filepath.Join(t.TempDir(), "storage.db"))
	publish := func(id string) (isNew bool) {
		t.Helper()
		e := l.event("acct", id)
		e.SetKey(7)
		l.run(t, func(s *eventlog.Step) (err error) {
			isNew, err = publish(s, e)
			return err
		})
		return isNew
	}
	others, all := newTestIDs(), 0
	for range 8 {
		for range 2 + 2*record.MaxIDEntries { // more IDs than a row can hold
			if id := fmt.Sprint("id-", all); !publish(id) || publish(id) {
				t.Fatalf("%s is not published once", id)
			}
			all++
		}
		others.publishRandom(t, l, 100)
	}
	if runs := runsOf(t, l); len(runs) < 2 {
		t.Fatalf("coverage precondition failed: the file has the runs %d", runs)
	}
	for i := range all {
		if id := fmt.Sprint("id-", i); publish(id) {
			t.Fatalf("%s is published twice", id)
		}
	}
}

// The test publishes an event of an erased account again. It must be new, wherever the old event's
// ID is stored, and known afterwards.
func TestIDs_PublishedAgainAfterErasure_AreNew(t *testing.T) {
	for name, runs := range map[string]int{"in memory": 0, "in a run": 1} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			l := openFewIDs(t, path)
			ids := newTestIDs() // IDs of the account acct
			ids.publishRandom(t, l, 100)
			ids.writeRuns(t, l, runs)
			l.erase(t, "acct")
			old := ids.list
			clear(ids.at)
			for range 2 {
				var steps []func(*eventlog.Step) error
				for _, id := range old {
					steps = append(steps, ids.publishID(t, l, id))
				}
				l.run(t, steps...)
			}
			if err := l.close(); err != nil {
				t.Fatal(err)
			}
			verify(t, path)
			ids.check(t, path)
		})
	}
}

// If a row is unreadable, publishing fails only for events whose IDs belong in that row.
func TestIDs_DamagedRow_OthersArePublished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	l := openFewIDs(t, path)
	newTestIDs().writeRuns(t, l, 1)
	var damaged []record.IDEntry
	var above uint64 // last key of the previous row
	if err := l.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(schema.EventIDs).Cursor()
		k, value := c.Last()
		damaged, _ = record.AppendIDEntries(nil, value)
		before, _ := c.Prev()
		above = binary.BigEndian.Uint64(before[8:])
		return tx.Bucket(schema.EventIDs).Put(k, []byte{record.Version, 0xff})
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l = openFewIDs(t, path)
	try := func(e *eventlog.Event) error {
		return l.steps.Run(t.Context(), func(s *eventlog.Step) error { _, err := publish(s, e); return err })
	}
	for i := range 200 {
		e := l.event("acct", fmt.Sprint("new-", i))
		err := try(e)
		if belongs := e.Key() > above && e.Key() <= damaged[len(damaged)-1].Key; (err != nil) != belongs {
			t.Errorf("an event with the key %x: %v; the row has keys from %x on", e.Key(), err, above)
		}
	}
	e := l.event("acct", "in the row")
	e.SetKey(damaged[0].Key)
	if err := try(e); err == nil {
		t.Error("an event whose ID belongs into the damaged row is published")
	}
}

// The test changes one row of schema.EventIDs at a time. Verify must name each.
func TestVerify_DamagedIDs_AreReported(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "storage.db")
	l := openFewIDs(t, whole)
	newTestIDs().writeRuns(t, l, 2)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(value []byte) []byte // nil removes the row
		want   string
	}{
		"a row that is removed": {func([]byte) []byte { return nil }, "missing from event_ids"},
		"a row that is cut":     {func(value []byte) []byte { return value[:len(value)-1] }, "unreadable"},
		"a row without entries": {func([]byte) []byte { return record.EncodeIDEntries(nil) }, "event_ids"},
		"a number of another run": {func(value []byte) []byte {
			entries, _ := record.AppendIDEntries(nil, value)
			entries[0].Number += 1000
			return record.EncodeIDEntries(entries)
		}, "missing from event_ids"},
		"a number of another event": {func(value []byte) []byte {
			entries, _ := record.AppendIDEntries(nil, value)
			entries[0].Number, entries[1].Number = entries[1].Number, entries[0].Number
			return record.EncodeIDEntries(entries)
		}, "missing from event_ids"},
		"a key of another row": {func(value []byte) []byte {
			entries, _ := record.AppendIDEntries(nil, value)
			entries[len(entries)-1].Key = math.MaxUint64
			return record.EncodeIDEntries(entries)
		}, "missing from event_ids"},
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
				b := tx.Bucket(schema.EventIDs)
				c := b.Cursor()
				k, value := c.First()
				if value = test.change(slices.Clone(value)); value == nil {
					return b.Delete(slices.Clone(k))
				}
				return b.Put(slices.Clone(k), value)
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			report, err := boltops.Verify(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(report.Problems); !strings.Contains(got, test.want) {
				t.Errorf("Verify = %.300s, want %q", got, test.want)
			}
		})
	}
}
