package bolt

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// A oneKeyStore is a store with one key.
type oneKeyStore struct {
	*engine
	t    *testing.T
	disk boltfault.Disk
	key  driver.Key
}

func storeOneKey(t *testing.T) *oneKeyStore {
	s := &oneKeyStore{t: t}
	s.engine = openTemp(t, s.disk.Option)
	s.key = driver.Key{ID: "key", Account: "acct", Name: "old", Hash: hashNumber(1)}
	if err := s.CreateKey(t.Context(), s.key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func hashNumber(n byte) (hash driver.Hash) {
	hash.Sum[31] = n
	return hash
}

// name looks up the key by its hash. It returns the name, and whether the key was in memory before
// the lookup.
func (s *oneKeyStore) name() (name string, inMemory bool) {
	s.t.Helper()
	_, inMemory = s.keyRows.Get(hashNumber(1))
	key, err := s.KeyByHash(s.t.Context(), hashNumber(1))
	if err != nil {
		s.t.Fatal(err)
	}
	return key.Name, inMemory
}

// warm reads the key twice. It fails the test unless the key is in memory afterwards.
func (s *oneKeyStore) warm() {
	s.t.Helper()
	s.name()
	s.name()
	if _, inMemory := s.name(); !inMemory {
		s.t.Error("the key is not in memory after two reads")
	}
}

func (s *oneKeyStore) rename(to string, fail func()) error {
	_, err := s.UpdateKey(s.t.Context(), "acct", "key", func(k *driver.Key, _ *audit.Entry) error {
		k.Name = to
		fail()
		return nil
	})
	return err
}

// A key that was read twice stays in memory until it is changed. Neither a recorded use nor an
// undone change may remove it from memory.
func TestKeyCache_ReadTwice_StaysCached(t *testing.T) {
	s := storeOneKey(t)
	s.warm()
	changes := []struct {
		name   string
		change func() error
		stays  bool
		fails  bool
	}{
		{"last use", func() error {
			return s.RecordKeyUse(t.Context(), []driver.KeyUse{{Account: "acct", ID: "key", Hash: hashNumber(1), At: hour(1)}})
		}, true, false},
		{"rename", func() error { return s.rename("new", func() {}) }, false, false},
		{"panic before writing", func() error { return s.rename("new", func() { panic("test") }) }, true, true},
		{"panic after writing", func() error {
			return s.writer.Run(t.Context(), func(b *batch) error {
				if err := putKey(b, s.key, s.key); err != nil {
					return err
				}
				panic("test")
			})
		}, true, true},
		{"failed commit", func() error {
			s.disk.Around(func(func() error) error { return errFull })
			defer s.disk.Around(nil)
			return s.rename("newer", func() {})
		}, true, true},
	}
	for _, c := range changes {
		if err := c.change(); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, inMemory := s.name(); inMemory != c.stays {
			t.Errorf("%s: the key is in memory after it: %v, want %v", c.name, inMemory, c.stays)
		}
		s.warm()
	}
	if name, _ := s.name(); name != "new" {
		t.Errorf("the name is %q", name)
	}
}

// The test makes a commit fail so that it is unknown whether it reached the disk. Readers must see
// what the file holds: at first the new state, and the old state once the operating system drops
// the unwritten page from its cache.
func TestKeyCache_CommitInDoubt_ReadsFile(t *testing.T) {
	s := storeOneKey(t)
	s.warm()
	s.disk.Around(func(commit func() error) error { return errors.Join(commit(), errBad) })
	_, err := s.UpdateKey(t.Context(), "acct", "key", func(k *driver.Key, _ *audit.Entry) error {
		k.Hash, k.Previous = hashNumber(2), hashNumber(3)
		return nil
	})
	if !errors.Is(err, errBad) {
		t.Fatalf("err = %v", err)
	}
	found := func() (found [3]bool) {
		for i := range found {
			_, err := s.KeyByHash(t.Context(), hashNumber(byte(i+1)))
			found[i] = err == nil
		}
		return found
	}
	for range 4 {
		if got, want := found(), [3]bool{false, true, true}; got != want {
			t.Fatalf("found: %v, want %v", got, want)
		}
	}
	s.loseLastCommit()
	if got, want := found(), [3]bool{true, false, false}; got != want {
		t.Errorf("found after the commit was lost: %v, want %v", got, want)
	}
}

// loseLastCommit sets the file back to the state before the last commit, as if the system had
// dropped a page that it could not write to disk.
func (s *oneKeyStore) loseLastCommit() {
	s.t.Helper()
	id := 0
	if err := s.db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		s.t.Fatal(err)
	}
	file, err := os.OpenFile(s.db.Path(), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	page := s.db.Info().PageSize
	if _, err := file.WriteAt(make([]byte, page), int64(id%2*page)); err != nil { // the other page is of the previous commit
		s.t.Fatal(err)
	}
}

// A closed store returns no key, even if the key was in memory, or if a reader adds it to the cache
// after Close.
func TestKeyCache_AfterClose_ReturnsNothing(t *testing.T) {
	s := storeOneKey(t)
	s.warm()
	version := s.keyRows.Version()
	row, err := s.readKeyRow(t.Context(), s.key.Hash.Sum[:])
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.keyRows.Fill(s.key.Hash, row, version)
		if _, err := s.KeyByHash(t.Context(), s.key.Hash); !errors.Is(err, store.ErrClosed) {
			t.Errorf("err = %v after Close, want ErrClosed", err)
		}
	}
}

// The test uses more keys than fit into the cache. The keys must evict each other, and each read
// must return the right key.
func TestKeyCache_IsBounded(t *testing.T) {
	s := openTemp(t)
	s.keyRows = newKeyRows(8)
	const count = 100
	err := s.writer.Run(t.Context(), func(b *batch) error {
		for i := range count {
			key := driver.Key{ID: fmt.Sprint("key_", i), Account: "acct", Hash: hashNumber(byte(i + 1))}
			key.Hash.Sum[0] = byte(i)
			if err := putKey(b, key, driver.Key{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 * count {
		i = i / 3 % count // reads each key three times, and then all keys again
		hash := hashNumber(byte(i + 1))
		hash.Sum[0] = byte(i)
		if key, err := s.KeyByHash(t.Context(), hash); err != nil || key.ID != fmt.Sprint("key_", i) || key.Hash != hash {
			t.Fatalf("key %d: %+v, %v", i, key, err)
		}
	}
	kept := 0
	for i := range count {
		hash := hashNumber(byte(i + 1))
		hash.Sum[0] = byte(i)
		if _, ok := s.keyRows.Get(hash); ok {
			kept++
		}
	}
	if kept != 8 {
		t.Errorf("%d keys are in memory, want 8", kept)
	}
}

// For the current and the previous hash, the cached key equals the key in the file.
func TestKeyCache_MatchesFile(t *testing.T) {
	key := driver.Key{
		ID: "key", Account: "acct", Name: "name", Scopes: scopes.Of(scopes.FilesRead, scopes.Scope("own:read")),
		CreatedAt: hour(1), ExpiresAt: hour(2), CreatedBy: audit.Actor{Kind: audit.ActorPerson, ID: "ann"},
		Hash: hashNumber(1), Hint: "sak_…k3Qz", Previous: hashNumber(2), PreviousHint: "old_…A1b2", PreviousExpiresAt: hour(3),
		LastUsedAt: hour(4), PreviousUsedAt: hour(5), Activity: "activity",
		AllowedNetworks: "192.0.2.0/24", RateLimit: 60, RotatedAt: hour(1), Disabled: true, Labels: `{"team":"build"}`,
	}
	key.Resources, _ = auth.ParseResources([]string{"bucket-1"})
	for i := range reflect.TypeFor[driver.Key]().NumField() {
		if reflect.ValueOf(key).Field(i).IsZero() {
			t.Errorf("%s is not set", reflect.TypeFor[driver.Key]().Field(i).Name)
		}
	}
	key.LastUsedAt, key.PreviousUsedAt, key.Activity = time.Time{}, time.Time{}, "" // the record lacks these fields
	s := openTemp(t)
	if err := s.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, hash := range []driver.Hash{hashNumber(1), hashNumber(2)} {
		for range 3 {
			if got, err := s.KeyByHash(t.Context(), hash); err != nil || got != key {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, key)
			}
		}
		if _, ok := s.keyRows.Get(hash); !ok {
			t.Error("the key is not in memory")
		}
	}
}

func TestKeyCache_Hit_DoesNotAllocate(t *testing.T) {
	s := storeOneKey(t)
	s.warm()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = s.KeyByHash(ctx, hashNumber(1)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
