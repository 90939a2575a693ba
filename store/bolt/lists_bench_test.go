package bolt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// BenchmarkOperatorLists uses a million keys that expire within a year, in 1,000 accounts or in
// one. It measures a page of the next 100 keys to expire after a given time, and the sizes of 100
// accounts or of the single account.
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
		s, err := open(path)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("expiring/accounts=%d", accounts), func(b *testing.B) {
			for b.Loop() {
				after := now.Add(time.Duration(rand.Int64N(int64(300 * 24 * time.Hour))))
				list, err := s.ExpiringKeys(b.Context(), driver.ExpiryQuery{After: driver.Expiry{At: after}, Before: now.AddDate(1, 0, 0), Limit: 100})
				if err != nil || len(list) != 100 {
					b.Fatal(len(list), err)
				}
			}
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

// fillExpiring fills a file with keys that expire.
func fillExpiring(b *testing.B, path string, keys, accounts int, now time.Time) {
	b.Helper()
	s, err := open(path)
	if err != nil {
		b.Fatal(err)
	}
	fill(b, s, keys, accounts)
	var rows []driver.Expiry
	err = s.writer.Run(b.Context(), func(batch *batch) error {
		return batch.tx.Bucket(schema.Keys).ForEach(func(hash, value []byte) error {
			var key driver.Key
			if err := record.DecodeKey(&key, hash, value); err != nil {
				return err
			}
			key.ExpiresAt = now.Add(time.Duration(rand.Int64N(int64(365 * 24 * time.Hour))))
			rows = append(rows, driver.ExpiryOf(&key))
			return batch.Put(schema.Keys, bytes.Clone(hash), record.EncodeKey(&key))
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b driver.Expiry) int { return bytes.Compare(record.ExpiryKey(a), record.ExpiryKey(b)) })
	err = s.writer.Run(b.Context(), func(batch *batch) error {
		for _, row := range rows {
			if err := batch.Put(schema.Expiry, record.ExpiryKey(row), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
}
