package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
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

// checkRows checks that each row of bucketEventIDs has the keys that it stands for, and no
// more of them than it should.
func checkRows(t *testing.T, s *Store) (rows int) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		var before []byte
		return tx.Bucket(bucketEventIDs).ForEach(func(k, value []byte) error {
			entries, err := record.AppendIDEntries(nil, value)
			if err != nil {
				return err
			}
			rows++
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
	return rows
}
