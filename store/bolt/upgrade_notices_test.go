package bolt_test

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt"
)

// TestUpgradeNotices puts the notices of a file of schema 7 into the log in transactions of
// different sizes: it is the same log, and Verify finds nothing wrong.
func TestUpgradeNotices(t *testing.T) {
	var first map[string]string
	for _, limit := range []int{1000, 1, 7, 18, 19, 20} {
		path := filepath.Join(t.TempDir(), "storage.db")
		copyFile(t, "testdata/schema-7.db", path)
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
		must(t, err)
		steps := 0
		for from := []byte{}; from != nil; steps++ {
			must(t, db.Update(func(tx *bbolt.Tx) (err error) {
				from, err = bolt.LogNotices(tx, from, limit)
				return err
			}))
		}
		must(t, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("schema"), binary.BigEndian.AppendUint64(nil, 8))
		}))
		must(t, db.Close())
		s, err := bolt.Open(path) // adds other buckets
		must(t, err)
		must(t, s.Close())
		report, err := bolt.Verify(path)
		must(t, err)
		must(t, report.Err())
		got := make(map[string]string)
		for key, value := range contents(t, path) {
			if strings.HasPrefix(key, "audit") {
				got[key] = value
			}
		}
		if len(got) < 19 || limit == 1 && steps != 19 {
			t.Errorf("%d rows, in %d steps", len(got), steps)
		}
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("in steps of %d:\n%s", limit, diff)
		}
	}
}
