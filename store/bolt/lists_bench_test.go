package bolt

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// BenchmarkOperatorLists measures, among a million keys that expire within a year, of 1,000
// accounts or of one: a page of 100 keys that expire from any time on; the sizes of 100 accounts,
// or of the one; and an upgrade of a file of schema 6, which fills the index by expiry, "upgrade-s".
//
//	go test -run '^$' -bench OperatorLists ./store/bolt
func BenchmarkOperatorLists(b *testing.B) {
	keys := 1_000_000
	if testing.Short() {
		keys = 10_000
	}
	for _, accounts := range []int{1000, 1} {
		path := filepath.Join(b.TempDir(), "lists.db")
		now := time.Now()
		fillExpiring(b, path, keys, accounts, now)
		begun := time.Now()
		s, err := Open(path, NoUpgradeCopy())
		if err != nil {
			b.Fatal(err)
		}
		upgraded := time.Since(begun)
		b.Run(fmt.Sprintf("expiring/accounts=%d", accounts), func(b *testing.B) {
			for b.Loop() {
				after := now.Add(time.Duration(rand.Int64N(int64(300 * 24 * time.Hour))))
				list, err := s.ExpiringKeys(b.Context(), apikeys.ExpiryQuery{After: apikeys.Expiry{At: after}, Before: now.AddDate(1, 0, 0), Limit: 100})
				if err != nil || len(list) != 100 {
					b.Fatal(len(list), err)
				}
			}
			b.ReportMetric(upgraded.Seconds(), "upgrade-s")
		})
		b.Run(fmt.Sprintf("sizes/accounts=%d", accounts), func(b *testing.B) {
			var list []string
			for i := range min(accounts, 100) {
				list = append(list, fmt.Sprint("acct_", i))
			}
			for b.Loop() {
				sizes, err := s.AccountSizes(b.Context(), list)
				if err != nil || sizes[0].Keys != keys/accounts {
					b.Fatal(sizes, err)
				}
			}
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// fillExpiring writes a file of schema 6.
func fillExpiring(b *testing.B, path string, keys, accounts int, now time.Time) {
	b.Helper()
	s, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	Fill(b, s, keys, accounts)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	expire := changeRows(bucketKeys, keys, func(value []byte) ([]byte, error) {
		var key apikeys.Key
		err := record.DecodeKey(&key, nil, value)
		key.ExpiresAt = now.Add(time.Duration(rand.Int64N(int64(365 * 24 * time.Hour))))
		return record.EncodeKey(&key), err
	})
	for from, more := []byte(nil), true; more; more = from != nil {
		err := db.Update(func(tx *bbolt.Tx) (err error) {
			from, err = expire(tx, from)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(bucketExpiry); err != nil {
			return err
		}
		return tx.Bucket(bucketMeta).Put(keySchema, record.NumberKey(6))
	})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
}
