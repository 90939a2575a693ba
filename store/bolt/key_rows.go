package bolt

import (
	"bytes"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// defaultCachedKeys is more keys than most services see in a day.
const defaultCachedKeys = 1 << 18

// CacheKeys sets how many keys are kept in memory: a request with one of them reads nothing of the file. No answer is
// stale: a change of a key counts from the moment when it was made. Each takes some 250 bytes once it was used twice, and
// more if it has many scopes of the host's own. 0 or less: none. Default: 262,144, some 61 MiB if as many are in use. Raise
// it if more keys than that are in use at a time.
func CacheKeys(count int) Option { return func(s *Store) { s.keyRows = newKeyRows(count) } }

// keyRows are rows of the bucket of keys, by hash, current or previous, as [record.DecodeKeyRow] takes them.
type keyRows = mirror.Mirror[apikeys.Hash, string]

func newKeyRows(count int) *keyRows {
	return mirror.New[apikeys.Hash](mirror.Options[string]{Max: count, Shards: min(64, 1+count/64), Second: true})
}

// maxCounts bounds how many accounts counts remember.
const maxCounts = 10_000

// counts remember how many keys accounts have, so that a limit is checked without counting each time.
// Only steps use them.
type counts struct {
	counted func(b *batch, hash []byte) bool // which keys are; nil: all
	rows    *mirror.Mirror[string, int]      // by account
}

func newCounts(counted func(b *batch, hash []byte) bool) counts {
	return counts{counted, mirror.New[string](mirror.Options[int]{Max: maxCounts})}
}

// of returns how many keys the account has.
func (c *counts) of(b *batch, account string) int {
	count, ok := c.rows.InStep(account)
	if ok {
		return count
	}
	prefix := record.Prefixed(account, "")
	rows := b.tx.Bucket(bucketKeyIDs).Cursor()
	for k, hash := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, hash = rows.Next() {
		if c.counted == nil || c.counted(b, hash) {
			count++
		}
	}
	c.rows.Keep(account, count)
	return count
}

// add notes that the step will add n keys, or remove some if n is negative.
func (c *counts) add(b *batch, account string, n int) {
	if count, ok := c.rows.InStep(account); ok {
		c.rows.Set(b, account, count+n)
	} else {
		c.rows.Drop(b, account)
	}
}
