package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// TestIDFilter: a filter has all keys that it was given, and few others.
func TestIDFilter(t *testing.T) {
	for kind, id := range map[string]func(n int) string{
		"random": func(n int) string {
			return fmt.Sprintf("%016x-%08d-x", rand.New(rand.NewPCG(1, uint64(n))).Uint64(), n)
		},
		"number": func(n int) string { return fmt.Sprint("order-", n) },
	} {
		t.Run(kind, func(t *testing.T) {
			const keys = keysPerWord * minFilter
			f, secret := newIDFilter(keys), idSecret{1}
			key := func(n int) uint64 { return secret.keyOf("acct", id(n)) }
			for n := range keys {
				f.add([]record.IDEntry{{Key: key(n)}})
			}
			few := 0
			for n := range keys {
				if !f.mayHave(key(n)) {
					t.Fatalf("it does not have the key of %q", id(n))
				}
				if f.mayHave(key(keys + n)) {
					few++
				}
			}
			if few > keys/30 {
				t.Errorf("it has %d of %d keys that it was not given", few, keys)
			}
		})
	}
}

// openWithoutFilter returns a file with random ids that are being merged, and in both buckets: in more rows than are read
// in a transaction for a filter. The next filter waits after each of those: paused gets a value then, and resume is to be sent one.
func openWithoutFilter(t *testing.T) (s *Store, ids *testIDs, paused, resume chan struct{}) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "storage.db")
	s = openWithSecret(t, path, idSecret{1})
	ids = newTestIDs()
	for range 40 {
		s.ids.limit, s.ids.wait = mergeMost/2, 0
		ids.publishRandom(t, s, mergeMost/8)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s.ids.begin()
	paused, resume = make(chan struct{}), make(chan struct{})
	s.ids.betweenRows = func() {
		paused <- struct{}{}
		<-resume
	}
	return s, ids, paused, resume
}

// fillFilter has a filter filled and used, with something done after each of its transactions.
func fillFilter(t *testing.T, s *Store, ids *testIDs, paused, resume chan struct{}, between func()) {
	t.Helper()
	s.ids.wait = math.MaxInt
	ids.publishRandom(t, s, mergeStep)
	s.ids.wait = 0
	ids.publishRandom(t, s, mergeStep)
	f := s.ids.nextFilter
	if f == nil {
		t.Fatal("no filter is being filled")
	}
	for filled := false; !filled; {
		select {
		case <-paused:
			between()
			resume <- struct{}{}
		case <-f.done:
			filled = true
		}
	}
	s.ids.wait = 0
	ids.publishRandom(t, s, mergeStep)
	s.ids.wait = 0
	if ids.publishRandom(t, s, mergeStep); f.err != nil || s.ids.filter != f {
		t.Fatalf("the filter is not in use: %v", f.err)
	}
}

// publishAgain publishes ids again: so many of them.
func (ids *testIDs) publishAgain(t *testing.T, s *Store, count int) {
	t.Helper()
	var steps []func(*batch) error
	for _, n := range ids.random.Perm(len(ids.list))[:count] {
		id := ids.list[n]
		steps = append(steps, ids.publishID(t, s, id))
	}
	if err := errors.Join(together(t, s, steps...)...); err != nil {
		t.Error(err)
	}
}

// TestFilterIsFilledBesideCommits: while a filter is filled ids are published, merged and moved between the transactions that
// read the file. All of them are found when they are published again, then and later.
func TestFilterIsFilledBesideCommits(t *testing.T) {
	s, ids, paused, resume := openWithoutFilter(t)
	defer func() { _ = s.Close() }()
	merging, before, pauses := s.ids.merging.count, len(storedIDs(t, s, bucketEventIDs)), 0
	fillFilter(t, s, ids, paused, resume, func() {
		pauses++
		for range 4 {
			s.ids.limit, s.ids.wait, s.ids.arrived = mergeStep, 0, mergeMost
			ids.publishRandom(t, s, mergeStep)
			ids.publishAgain(t, s, mergeStep)
		}
	})
	if moved := len(storedIDs(t, s, bucketEventIDs)) - before; merging == 0 || moved < 1000 || pauses < 3 {
		t.Errorf("%d ids were being merged, and %d moved in %d pauses: the test tests too little", merging, moved, pauses)
	}
	ids.publishAgain(t, s, len(ids.list))
}

// TestNewIDsAreNotLookedFor: most new ids are published without looking for them in the file.
func TestNewIDsAreNotLookedFor(t *testing.T) {
	s, ids, paused, resume := openWithoutFilter(t)
	defer func() { _ = s.Close() }()
	fillFilter(t, s, ids, paused, resume, func() {})
	looked := 0
	for n := range 100 {
		publish := ids.publishID(t, s, fmt.Sprintf("%016x-new", n))
		var used *batch
		if err := errors.Join(together(t, s, func(b *batch) error { used = b; return publish(b) })...); err != nil {
			t.Fatal(err)
		}
		if used.inFile[0] != nil {
			looked++
		}
	}
	if looked > 10 {
		t.Errorf("%d of 100 new ids were looked for in the file", looked)
	}
}

// TestFilterIsRenewed: once it is full a filter is in use until another one is filled.
func TestFilterIsRenewed(t *testing.T) {
	s, ids, paused, resume := openWithoutFilter(t)
	defer func() { _ = s.Close() }()
	fillFilter(t, s, ids, paused, resume, func() {})
	full := s.ids.filter
	full.added = 2 * keysPerWord * len(full.words)
	fillFilter(t, s, ids, paused, resume, func() {
		if ids.publishRandom(t, s, mergeStep); s.ids.filter != full {
			t.Error("the full filter is not in use any more")
		}
	})
	if s.ids.filter == full {
		t.Error("the full filter is still in use")
	}
	ids.publishAgain(t, s, len(ids.list))
}

// TestNoFilterOfDamage: an event whose id belongs into a row that is damaged fails, for the id may be there.
func TestNoFilterOfDamage(t *testing.T) {
	s, ids, _, _ := openWithoutFilter(t)
	defer func() { _ = s.Close() }()
	s.ids.betweenRows = nil
	var low, high []byte // the row has the keys between
	damaged := []byte("damaged")
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketEventIDs).Cursor()
		k, _ := c.Seek(record.NumberKey(randomKeys + 1<<62))
		high = bytes.Clone(k)
		k, _ = c.Prev()
		low = bytes.Clone(k)
		return tx.Bucket(bucketEventIDs).Put(high, damaged)
	}); err != nil {
		t.Fatal(err)
	}
	s.ids.moving = 0 // far from it
	for range 2 {
		s.ids.wait, s.ids.arrived = 0, mergeStep
		if err := errors.Join(together(t, s, ids.publishID(t, s, ulid.MustNew(ulid.Now(), ids).String()))...); err != nil {
			t.Fatal(err)
		}
		if f := s.ids.nextFilter; f != nil {
			<-f.done
		}
	}
	if s.ids.filter != nil || !s.ids.noFilter {
		t.Error("there is a filter")
	}
	for n, found := 0, 0; found < 3; n++ {
		e := newTestEvent(s, webhooks.EncodedEvent{ID: fmt.Sprintf("%016x-new", n), Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: time.Now()})
		if key := record.NumberKey(e.key); bytes.Compare(key, low) <= 0 || bytes.Compare(key, high) > 0 {
			continue
		}
		found++
		err := errors.Join(together(t, s, func(b *batch) error { _, _, err := s.enqueue(b, e, ""); return err })...)
		if !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%s: %v, want %v", e.ID, err, record.ErrCorrupt)
		}
	}
}

// TestCloseWhileAFilterIsFilled: the file is read no further.
func TestCloseWhileAFilterIsFilled(t *testing.T) {
	s, ids, paused, resume := openWithoutFilter(t)
	ids.publishRandom(t, s, 1)
	f := s.ids.nextFilter
	<-paused
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for !f.stopped.Load() {
		select {
		case err := <-closed:
			t.Fatal("closed:", err)
		default:
			runtime.Gosched()
		}
	}
	resume <- struct{}{}
	if err := <-closed; err != nil || !errors.Is(f.err, errStopped) {
		t.Errorf("%v; filling: %v, want %v", err, f.err, errStopped)
	}
}

// TestLeavesAhead: the leaves of a tree are counted, about, and those read that have a key and come after it.
func TestLeavesAhead(t *testing.T) {
	s, _, _, _ := openWithoutFilter(t)
	defer func() { _ = s.Close() }()
	tx, err := s.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	rows, ahead := tx.Bucket(bucketEventIDs), s.newReadAhead(tx)
	if got, want := ahead.leavesIn(rows), rows.Stats().LeafPageN; got < want/2 || got > 2*want || want < 40 {
		t.Errorf("%d leaves, want about %d", got, want)
	}
	if got := ahead.leavesIn(tx.Bucket(bucketKeys)); got != 1 {
		t.Errorf("an empty tree has %d leaves, want 1", got)
	}
	file := &seen{ReaderAt: s.file, read: make([]byte, tx.Size())}
	ahead.file = file
	const from, leaves = randomKeys + 1<<61, 16
	ahead.leavesFrom(rows, from, leaves)
	c := rows.Cursor()
	read := 0
	for k, value := c.Seek(record.NumberKey(from)); k != nil && bytes.Contains(file.read, value); k, value = c.Next() {
		read++
	}
	if read < leaves || read > 10*leaves {
		t.Errorf("%d rows were read, want those of %d leaves", read, leaves)
	}
	if k, value := c.Seek(record.NumberKey(randomKeys)); k == nil || bytes.Contains(file.read, value) {
		t.Error("a row long before them was read")
	}
}
