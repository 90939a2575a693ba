package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// TestEventIDs publishes under ids of all kinds, some of them twice, purges, and goes on with
// the file as a kill leaves it after any commit, so at every step of a merge: an event is
// found by its id, and found again if it is published again, until its id is purged.
func TestEventIDs(t *testing.T) {
	const perCommit, commits, limit = mergeStep, 120, 1500
	testbubble.Run(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "storage.db")
		s := openWithSecret(t, path, idSecret{1})
		defer func() { _ = s.Close() }()
		ids := newTestIDs()
		var publish []func(*batch) error
		for range 4000 { // of one time, so that some have the same key
			publish = append(publish, ids.publishID(t, s, "evt_"+ulid.MustNew(1_000_000, ids).String()))
		}
		if err := errors.Join(together(t, s, publish...)...); err != nil {
			t.Fatal(err)
		}
		several := len(s.ids.newer.more)
		merges, steps := 0, 0
		for commit := range commits {
			s.ids.limit = limit
			publish = publish[:0]
			for range perCommit {
				publish = append(publish, ids.publish(t, s))
			}
			merging := s.ids.merging.count
			if err := errors.Join(together(t, s, publish...)...); err != nil {
				t.Fatal(err)
			}
			if merging > 0 {
				if steps++; s.ids.merging.count == 0 {
					merges++
				}
			}
			time.Sleep(time.Minute)
			if commit%10 == 9 {
				ids.purge(t, s, time.Now().Add(-40*time.Minute))
			}
			if commit%8 == 0 || merging > 0 && steps < 20 {
				ids.check(t, path)
			}
			if commit%37 == 36 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if s, err = Open(path); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("%d merges, of %d steps, %d keys of several ids", merges, steps, several)
		if merges < 2 || steps < 20 || several == 0 {
			t.Error("the test tests too little")
		}
	})
}

// openWithSecret makes a file whose ids have the same keys in each run of the test.
func openWithSecret(t *testing.T, path string, secret idSecret) *Store {
	if err := create(path); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyIDSecret, secret[:]) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
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
	checkRows(t, s)
	var publish []func(*batch) error
	for fork := ids.fork(); len(publish) < mergeStep; {
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

// checkRows checks that each row of ids has the keys that it stands for, and no
// more of them than it should.
func checkRows(t *testing.T, s *Store) {
	t.Helper()
	for _, bucket := range idBuckets {
		checkRowsOf(t, s, bucket)
	}
}

func checkRowsOf(t *testing.T, s *Store, bucket []byte) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		var before []byte
		return tx.Bucket(bucket).ForEach(func(k, value []byte) error {
			entries, err := record.AppendIDEntries(nil, value)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if key := record.NumberKey(e.Key); bytes.Compare(key, k) > 0 || before != nil && bytes.Compare(key, before) <= 0 {
					t.Errorf("row %x after row %x has the key %x", k, before, key)
				}
			}
			if !slices.IsSortedFunc(entries, compareIDs) {
				t.Errorf("row %x is not sorted", k)
			}
			before = bytes.Clone(k)
			if len(entries) > record.MaxIDEntries {
				t.Errorf("row %x has %d entries", k, len(entries))
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMergeGoesOnAfterOpen opens a file again and again while a merge is under way: it
// goes on, though each time fewer ids arrive than it would take if it began anew, or went on
// only after some of them. So what is in memory and read by Open stays bounded.
func TestMergeGoesOnAfterOpen(t *testing.T) {
	for _, c := range []struct{ commits, perCommit, opened int }{{10, 100, 12}, {1, 1, 12}} {
		t.Run(fmt.Sprint(c.commits*c.perCommit), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			s, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			ids := newTestIDs()
			ids.publishRandom(t, s, minMerge)
			for ids.publishRandom(t, s, 1); s.ids.merging.count > 0; {
				ids.publishRandom(t, s, mergeStep) // many rows, and then a merge that changes all of them
			}
			ids.publishRandom(t, s, minMerge)
			ids.publishRandom(t, s, 1)
			before := s.ids.merging.count
			for range c.opened {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = Open(path); err != nil {
					t.Fatal(err)
				}
				for range c.commits {
					ids.publishRandom(t, s, c.perCommit)
				}
			}
			if inMemory := s.ids.merging.count + s.ids.newer.count; before == 0 || inMemory >= before {
				t.Errorf("%d ids are in memory, want less than %d, as many as the merge began with", inMemory, before)
			}
			ids.check(t, path)
		})
	}
}

// TestMergeDividesRows merges many ids that belong into one row, whose own ids are among
// them: no commit is of many more than mergeMost of them, and all are found, though some are
// purged meanwhile.
func TestMergeDividesRows(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "storage.db")
		s := openWithSecret(t, path, idSecret{1})
		defer func() { _ = s.Close() }()
		ids := newTestIDs()
		publish := func(count int) {
			t.Helper()
			var steps []func(*batch) error
			for range count {
				id := ulid.MustNew(1_000_000+ids.random.Uint64N(1000), ids).String()
				steps = append(steps, ids.publishID(t, s, id))
			}
			if err := errors.Join(together(t, s, steps...)...); err != nil {
				t.Fatal(err)
			}
		}
		s.ids.limit = 30
		for commits := 0; len(storedIDs(t, s)) == 0 || s.ids.merging.count > 0; commits++ { // few rows
			if publish(mergeStep); commits > 4*mergeEvery {
				t.Fatalf("%d ids are being merged", s.ids.merging.count)
			}
		}
		s.ids.limit = 3 * mergeMost
		time.Sleep(time.Hour)
		publish(2 * mergeMost)
		time.Sleep(time.Hour)
		publish(mergeMost)
		for steps := 0; steps == 0 || s.ids.merging.count > 0; steps++ {
			before := len(storedIDs(t, s))
			if publish(mergeStep); len(storedIDs(t, s))-before > mergeMost {
				t.Errorf("a commit merges %d ids", len(storedIDs(t, s))-before)
			}
			if steps%32 == 0 {
				ids.check(t, path)
			}
			if steps == 2 {
				ids.purge(t, s, time.Now().Add(-90*time.Minute))
			}
			if steps > 3*mergeMost/mergeStep {
				t.Fatal("the merge does not end")
			}
		}
		checkRows(t, s)
	})
}

// TestMergeKeepsUp publishes as many at a time as a busy service does: while a merge is under
// way half as many ids arrive as it is of, or a little more.
func TestMergeKeepsUp(t *testing.T) {
	const perCommit = 2 * mergeStep
	s, ids := openTemp(t), newTestIDs()
	ids.publishRandom(t, s, minMerge)
	for ids.publishRandom(t, s, 1); s.ids.merging.count > 0; {
		ids.publishRandom(t, s, mergeStep) // many rows, and then a merge that changes all of them
	}
	ids.publishRandom(t, s, minMerge)
	ids.publishRandom(t, s, 1)
	merged := s.ids.merging.count
	for s.ids.merging.count > 0 {
		if ids.publishRandom(t, s, perCommit); s.ids.newer.count > merged {
			t.Fatalf("%d ids have arrived while %d are being merged", s.ids.newer.count, merged)
		}
	}
	if most := merged/2 + 4*perCommit; s.ids.newer.count > most {
		t.Errorf("%d ids have arrived while %d were merged, want at most %d", s.ids.newer.count, merged, most)
	}
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

// storedIDs returns the entries in the buckets of ids, or in one of them.
func storedIDs(t *testing.T, s *Store, in ...[]byte) (entries []record.IDEntry) {
	t.Helper()
	if in == nil {
		in = idBuckets[:]
	}
	err := s.db.View(func(tx *bbolt.Tx) error {
		for _, bucket := range in {
			err := tx.Bucket(bucket).ForEach(func(_, value []byte) (err error) {
				entries, err = record.AppendIDEntries(entries, value)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return entries
}

// TestIDsMoveManyAtATime: ids that are spread over many rows of bucketEventIDs stay in bucketRecentIDs until they are some for
// each row, so that a commit changes few rows there; no more of them stay than that, and all are found, erased and
// purged there as in the others.
func TestIDsMoveManyAtATime(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "storage.db")
		s := openWithSecret(t, path, idSecret{1})
		defer func() { _ = s.Close() }()
		ids := newTestIDs()
		moves, most := 0, 0
		for range 120 {
			s.ids.limit = 4 * mergeStep
			before := len(storedIDs(t, s, bucketEventIDs))
			ids.publishRandom(t, s, 4*mergeStep)
			recent, after := len(storedIDs(t, s, bucketRecentIDs)), len(storedIDs(t, s, bucketEventIDs))
			if most = max(most, recent); after > before {
				moves++
			}
			// Each row has 32 to 64 ids; rows that are looked at late may have twice what is moved.
			if bound := after/32*moveFrom*2 + 32*mergeStep; recent > bound {
				t.Fatalf("%d ids are in %s and %d in %s, want at most %d", recent, bucketRecentIDs, after, bucketEventIDs, bound)
			}
			time.Sleep(time.Minute)
		}
		checkRows(t, s)
		ids.check(t, path)
		if recent := len(storedIDs(t, s, bucketRecentIDs)); recent < 16*mergeStep || moves < 10 {
			t.Errorf("%d ids are in %s, after %d moves", recent, bucketRecentIDs, moves)
		}
		ids.purge(t, s, time.Now().Add(-time.Hour))
		ids.check(t, path)
		ids.purge(t, s, time.Now())
		var gone uint64
		if err := s.db.View(func(tx *bbolt.Tx) error { gone = metaNumber(tx, keyIDsGone); return nil }); err != nil {
			t.Fatal(err)
		}
		for _, e := range storedIDs(t, s) {
			if e.Number < gone {
				t.Fatalf("number %d is in a row, all before %d are purged", e.Number, gone)
			}
		}
	})
}

// TestIDsBeforeErasedOnes: an event is found when it is published again, though the rows after that of its
// id are empty, for their events were erased, and the file was opened since.
func TestIDsBeforeErasedOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	entropy := newTestIDs()
	var ids []string
	publish := func(account string, known bool, ids ...string) {
		t.Helper()
		var steps []func(*batch) error
		for _, id := range ids {
			e := newTestEvent(s, webhooks.EncodedEvent{ID: id, Account: account, Type: webhooks.TypeBalanceLow, Timestamp: time.Now()})
			steps = append(steps, func(b *batch) error {
				_, isNew, err := s.enqueue(b, e, "")
				if isNew == known {
					t.Errorf("%s of %s: published anew: %t", id, account, isNew)
				}
				return err
			})
		}
		if err := errors.Join(together(t, s, steps...)...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 * record.MaxIDEntries {
		ids = append(ids, ulid.MustNew(uint64(1_000_000+i), entropy).String())
	}
	first, later := ids[:len(ids)/2], ids[len(ids)/2:]
	s.ids.limit = len(ids)
	publish("kept", false, first...)
	publish("erased", false, later...)
	for i := 0; i == 0 || s.ids.merging.count > 0; i++ {
		var more []string
		for range mergeStep {
			more = append(more, fmt.Sprintf("%016x-%016x", entropy.random.Uint64(), entropy.random.Uint64()))
		}
		publish("kept", false, more...)
	}
	for more := true; more; {
		if _, more, err = s.EraseAccount(t.Context(), "erased", 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path); err != nil {
		t.Fatal(err)
	}
	publish("kept", true, first...)
}

// TestEraseBesideAMerge: ids of events that are erased are not merged into the file by the commit that erases them.
func TestEraseBesideAMerge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	random := newTestIDs().random
	publish := func(account string, count int) (steps []func(*batch) error) {
		for range count {
			e := newTestEvent(s, webhooks.EncodedEvent{
				ID: fmt.Sprintf("%016x-%016x", random.Uint64(), random.Uint64()), Account: account, Type: webhooks.TypeBalanceLow, Timestamp: time.Now(),
			})
			steps = append(steps, func(b *batch) error {
				_, _, err := s.enqueue(b, e, "")
				return err
			})
		}
		return steps
	}
	commit := func(steps ...func(*batch) error) {
		t.Helper()
		if err := errors.Join(together(t, s, steps...)...); err != nil {
			t.Fatal(err)
		}
	}
	s.ids.limit = 1000
	commit(publish("erased", 1000)...)
	s.ids.wait = 0
	commit(publish("kept", mergeStep)...)
	if s.ids.merging.count == 0 {
		t.Fatal("no merge is under way")
	}
	s.ids.wait = 0
	if _, _, err := s.EraseAccount(t.Context(), "erased", 1); err != nil { // closes it
		t.Fatal(err)
	}
	erase := func(b *batch) error {
		_, err := s.eraseEvents(b, &erasure{account: "erased"}, math.MaxInt)
		return err
	}
	commit(append([]func(*batch) error{erase}, publish("kept", mergeStep)...)...)
	commit(publish("kept", mergeStep)...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := Verify(path); err != nil || report.Err() != nil {
		t.Error(err, report.Err())
	}
}
