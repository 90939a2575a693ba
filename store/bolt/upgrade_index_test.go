package bolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/bolt"
)

// TestUpgradeIndex fills an index in transactions of different sizes, and in upgrades that
// are cut short anywhere: it is the one that creating, changing and deleting keys has made.
func TestUpgradeIndex(t *testing.T) {
	const keys = 60
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	must(t, err)
	for i := range keys {
		key := apikeys.Key{ID: fmt.Sprintf("key_%02d", i), Account: fmt.Sprint("acct_", i%7), Name: "name", CreatedAt: time.Now()}
		key.Hash.Sum[0] = byte(1 + i*37%keys)
		if i%3 > 0 {
			key.ExpiresAt = time.UnixMilli(int64(i%5-2) * 1000)
		}
		if i%2 > 0 {
			key.Previous.Sum[1] = byte(1 + i)
		}
		must(t, s.CreateKey(t.Context(), key, apikeys.CreateOptions{}))
	}
	must(t, s.Close())
	before := indexOf(t, path, "expiry")
	if len(before) != keys*2/3 {
		t.Fatalf("%d keys expire, want %d", len(before), keys*2/3)
	}
	for _, limit := range []int{1, 7, len(before) - 1, len(before), 1000} {
		for _, cut := range []int{0, 1, keys, 3 * keys, 1 << 30} {
			copied := filepath.Join(t.TempDir(), "copy.db")
			copyFile(t, path, copied)
			looks := 0
			for opened := false; !opened; cut *= 2 {
				s, err := bolt.Open(copied, bolt.NoUpgradeCopy(), bolt.WithIndexUpgrade("again", limit, func() {
					if looks++; looks == cut {
						panic("cut short")
					}
				}))
				if opened = err == nil; opened {
					must(t, s.Close())
				} else if cut <= 0 || looks < cut || errors.Is(err, bolt.ErrLocked) {
					t.Fatal(err)
				}
				looks = 0
			}
			if diff := cmp.Diff(before, indexOf(t, copied, "again")); diff != "" {
				t.Fatalf("in steps of %d:\n%s", limit, diff)
			}
		}
	}
}

// indexOf returns the rows of a bucket in the order of their keys.
func indexOf(t *testing.T, path, bucket string) (rows []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Minute})
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
			rows = append(rows, fmt.Sprintf("%x %q %q", k[:8], k[8:], v))
			return nil
		})
	}))
	return rows
}
