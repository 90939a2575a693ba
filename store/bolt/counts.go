package bolt

import (
	"bytes"

	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

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
