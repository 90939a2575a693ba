package bolt

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// firstBuckets are those of a file of version 1.
var firstBuckets = [][]byte{
	bucketMeta, bucketKeys, bucketKeyIDs, bucketKeyUses, bucketWebhooks, bucketWebhookIDs,
	bucketEvents, bucketBodies, bucketEventIDs, bucketOwed, bucketSkipped, bucketAttempts, bucketRuns,
	bucketRecoveries, bucketOpenRecoveries,
}

// downgraded makes a file what version 1 of the schema would have it, but for the
// records.
func downgraded(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if !slices.ContainsFunc(firstBuckets, func(first []byte) bool { return string(first) == string(name) }) {
				if err := tx.DeleteBucket(name); err != nil {
					return err
				}
			}
		}
		uses := tx.Bucket(bucketKeyUses)
		c := uses.Cursor()
		for k, value := c.First(); k != nil; k, value = c.Next() {
			if err := uses.Put(k, value[:8]); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint64(nil, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilesOfVersion1 opens one: all that is there can be used, and what came
// later too.
func TestFilesOfVersion1(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	open := func() *Store {
		t.Helper()
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	at := time.UnixMilli(1_800_000_000_123).UTC()
	fresh := apikeys.Key{ID: "fresh", Account: "acct", Name: "a", Scopes: scopes.All(), CreatedAt: at}
	fresh.Hash.Sum[0] = 1
	rotated := apikeys.Key{ID: "rotated", Account: "acct", Name: "b", Scopes: scopes.All(), CreatedAt: at, PreviousExpiresAt: at.Add(time.Hour)}
	rotated.Hash.Sum[0], rotated.Previous.Sum[0] = 2, 3
	s := open()
	for _, key := range []apikeys.Key{fresh, rotated} {
		if err := s.CreateKey(t.Context(), key, apikeys.Terms{}); err != nil {
			t.Fatal(err)
		}
		if err := s.RecordKeyUse(t.Context(), []apikeys.KeyUse{{Account: "acct", ID: key.ID, At: at}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	downgraded(t, path)

	for range 2 { // the second time it is one of this version
		s = open()
		fresh.LastUsedAt, rotated.LastUsedAt = at, at
		list, err := s.ListKeys(t.Context(), "acct", apikeys.Page{Limit: 9})
		if diff := cmp.Diff([]apikeys.Key{rotated, fresh}, list, cmp.Comparer(func(a, b scopes.Set) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("ListKeys (-want +got), %v:\n%s", err, diff)
		}
		err = s.db.View(func(tx *bbolt.Tx) error {
			for _, name := range buckets {
				if tx.Bucket(name) == nil {
					t.Errorf("there is no bucket %s", name)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	// Of a key that was never rotated, its use is that of its hash; of another it
	// is not known which it was of.
	s = open()
	defer func() { _ = s.Close() }()
	for id, want := range map[string]time.Time{"fresh": at, "rotated": {}} {
		key, err := s.UpdateKey(t.Context(), "acct", id, func(key *apikeys.Key) error {
			key.Previous = key.Hash
			key.Hash.Sum[1]++
			return nil
		})
		if err != nil || !key.PreviousUsedAt.Equal(want) || !key.LastUsedAt.Equal(at) {
			t.Errorf("%s rotated: used at %v, its previous hash at %v, %v; want %v", id, key.LastUsedAt, key.PreviousUsedAt, err, want)
		}
	}
}
