package bolt

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
)

// A countedReads is a store of one key with a cache, which counts how often a key is read from the file.
type countedReads struct {
	*Store
	t     *testing.T
	key   apikeys.Key
	reads int
}

func countReads(t *testing.T) *countedReads {
	s := &countedReads{Store: openTemp(t), t: t}
	s.keyCache.test = func(at keyFence) bool {
		if at == readBegins {
			s.reads++
		}
		return false
	}
	s.key = apikeys.Key{ID: "key", Account: "acct", Name: "old", Hash: hashNumber(1)}
	if err := s.CreateKey(t.Context(), s.key, apikeys.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func hashNumber(n byte) (hash apikeys.Hash) {
	hash.Sum[31] = n
	return hash
}

// name returns the key's name by its hash, and how often it was read from the file for that.
func (s *countedReads) name() (name string, reads int) {
	s.t.Helper()
	before := s.reads
	key, err := s.KeyByHash(s.t.Context(), hashNumber(1))
	if err != nil {
		s.t.Fatal(err)
	}
	return key.Name, s.reads - before
}

// warm has the key be in memory, and fails if that cannot be had.
func (s *countedReads) warm() {
	s.t.Helper()
	for range 3 {
		if _, reads := s.name(); reads == 0 {
			return
		}
	}
	s.t.Error("the key is not in memory after three reads")
}

func (s *countedReads) rename(to string, fail func()) error {
	_, err := s.UpdateKey(s.t.Context(), "acct", "key", func(k *apikeys.Key, _ *notices.Notice) error {
		k.Name = to
		fail()
		return nil
	})
	return err
}

// TestKeysAreInMemory: a key that is asked for again is not read from the file, until it is changed, but also once more
// after that, and after a change that failed. A last use is no change.
func TestKeysAreInMemory(t *testing.T) {
	s := countReads(t)
	s.warm()
	changes := []struct {
		name   string
		change func() error
		reads  int
		fails  bool
	}{
		{"last use", func() error {
			return s.RecordKeyUse(t.Context(), []apikeys.KeyUse{{Account: "acct", ID: "key", Hash: hashNumber(1), At: hour(1)}})
		}, 0, false},
		{"rename", func() error { return s.rename("new", func() {}) }, 1, false},
		{"panic before writing", func() error { return s.rename("new", func() { panic("test") }) }, 0, true},
		{"panic after writing", func() error {
			return s.writer.Run(t.Context(), func(b *batch) error {
				if err := putKey(b, s.key, s.key); err != nil {
					return err
				}
				panic("test")
			})
		}, 1, true},
		{"failed commit", func() error {
			boltfault.Around(s.Store, func(func() error) error { return errFull })
			defer boltfault.Around(s.Store, nil)
			return s.rename("newer", func() {})
		}, 1, true},
	}
	for _, c := range changes {
		if err := c.change(); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, reads := s.name(); reads != c.reads {
			t.Errorf("%s: the key was read %d times from the file after it, want %d", c.name, reads, c.reads)
		}
		s.warm()
	}
	if name, _ := s.name(); name != "new" {
		t.Errorf("the name is %q", name)
	}
}

// TestKeysInDoubtAreReadFromTheFile: if a commit fails and it is not known what is on the disk, readers see whatever the
// system makes of that: what was committed, and later what was there before.
func TestKeysInDoubtAreReadFromTheFile(t *testing.T) {
	for _, leftOut := range []bool{false, true} {
		s := countReads(t)
		inner := s.keyCache.test
		s.keyCache.test = func(at keyFence) bool { return inner(at) || leftOut && at == fenceKept }
		s.warm()
		boltfault.Around(s.Store, func(commit func() error) error { return errors.Join(commit(), errBad) })
		_, err := s.UpdateKey(t.Context(), "acct", "key", func(k *apikeys.Key, _ *notices.Notice) error {
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
		want := [3]bool{true, leftOut, leftOut}
		if got := found(); got != want {
			t.Errorf("found after the commit was lost: %v, want %v", got, want)
		}
	}
}

// loseLastCommit has the file be as before the last commit, as if the system had dropped a page that it could not write.
func (s *countedReads) loseLastCommit() {
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
	if _, err := file.WriteAt(make([]byte, page), int64(id%2*page)); err != nil { // the other page of the two is the one before
		s.t.Fatal(err)
	}
}

// TestKeysAreNotReadAfterClose: also not by one that began to read before, and ended after.
func TestKeysAreNotReadAfterClose(t *testing.T) {
	for _, leftOut := range []bool{false, true} {
		s := countReads(t)
		ends := 0
		s.keyCache.test = func(at keyFence) bool {
			if at == readEnds {
				if ends++; ends == 1 {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			return leftOut && at == fenceClosed
		}
		s.name()
		if _, err := s.KeyByHash(t.Context(), hashNumber(1)); errors.Is(err, store.ErrClosed) == leftOut || ends != 1 {
			t.Errorf("leaving the fence out: %v: err = %v after Close", leftOut, err)
		}
	}
}

// TestKeysInMemoryAreBounded: keys of which more are in use than fit give way to others, and each is what it is.
func TestKeysInMemoryAreBounded(t *testing.T) {
	s := openTemp(t)
	s.keyCache = newKeyCache(8)
	const count = 100
	err := s.writer.Run(t.Context(), func(b *batch) error {
		for i := range count {
			key := apikeys.Key{ID: fmt.Sprint("key_", i), Account: "acct", Hash: hashNumber(byte(i + 1))}
			key.Hash.Sum[0] = byte(i)
			if err := putKey(b, key, apikeys.Key{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 * count {
		i = i / 3 % count // each is asked for three times, and all again
		hash := hashNumber(byte(i + 1))
		hash.Sum[0] = byte(i)
		if key, err := s.KeyByHash(t.Context(), hash); err != nil || key.ID != fmt.Sprint("key_", i) || key.Hash != hash {
			t.Fatalf("key %d: %+v, %v", i, key, err)
		}
	}
	kept := 0
	for i := range s.keyCache.sets {
		for way := range s.keyCache.sets[i].keys {
			if s.keyCache.sets[i].keys[way].Load() != nil {
				kept++
			}
		}
	}
	if kept != 8 {
		t.Errorf("%d keys are in memory, want 8", kept)
	}
}

// TestKeysInMemoryAreWhole: all that is in a key's record is kept, whichever of its hashes it stands under.
func TestKeysInMemoryAreWhole(t *testing.T) {
	key := apikeys.Key{
		ID: "key", Account: "acct", Name: "name", Scopes: scopes.Of(scopes.FilesRead, scopes.Scope("own:read")),
		CreatedAt: hour(1), ExpiresAt: hour(2), CreatedBy: notices.Actor{Kind: notices.ActorPerson, ID: "ann"},
		Hash: hashNumber(1), Hint: "sak_…k3Qz", Previous: hashNumber(2), PreviousHint: "old_…A1b2", PreviousExpiresAt: hour(3),
		LastUsedAt: hour(4), PreviousUsedAt: hour(5),
	}
	for i := range reflect.TypeFor[apikeys.Key]().NumField() {
		if reflect.ValueOf(key).Field(i).IsZero() {
			t.Errorf("%s is not set", reflect.TypeFor[apikeys.Key]().Field(i).Name)
		}
	}
	key.LastUsedAt, key.PreviousUsedAt = time.Time{}, time.Time{} // they are not in the record
	for _, key := range []apikeys.Key{key, {ID: "key", Hash: hashNumber(1)}} {
		for _, hash := range []apikeys.Hash{hashNumber(1), hashNumber(2)} {
			var got apikeys.Key
			if packKey(&hash, &key).unpack(&got); got != key {
				t.Errorf("got  %+v\nwant %+v", got, key)
			}
		}
	}
	key.Name = strings.Repeat("n", 1<<16)
	if packKey(&key.Hash, &key) != nil {
		t.Error("a text too long was packed")
	}
}

func TestKeysInMemoryCostNoAllocation(t *testing.T) {
	s := countReads(t)
	s.warm()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = s.KeyByHash(ctx, hashNumber(1)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
