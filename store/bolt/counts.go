package bolt

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// maxCounts bounds how many accounts counts remember.
const maxCounts = 10_000

// counts remember how many rows accounts have in a bucket, whose keys are prefixed
// accounts and ids, so that a limit is checked without counting each time. Only steps of
// the writer use them; those that add or remove rows call add, and a transaction that is
// undone makes them forget all.
type counts struct {
	bucket    []byte
	kind      string                                // with which the rows begin, before the account
	counted   func(tx *bbolt.Tx, value []byte) bool // which rows are; nil: all
	byAccount map[string]int                        // rows
}

// of returns how many rows the account has.
func (c *counts) of(tx *bbolt.Tx, account string) int {
	if count, known := c.byAccount[account]; known {
		return count
	}
	if c.byAccount == nil || len(c.byAccount) >= maxCounts {
		c.byAccount = make(map[string]int)
	}
	count, prefix := 0, append([]byte(c.kind), record.Prefixed(account, "")...)
	rows := tx.Bucket(c.bucket).Cursor()
	for k, value := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = rows.Next() {
		if c.counted == nil || c.counted(tx, value) {
			count++
		}
	}
	c.byAccount[account] = count
	return count
}

// add tells of rows that were added, or removed if n is negative.
func (c *counts) add(account string, n int) {
	if count, known := c.byAccount[account]; known {
		c.byAccount[account] = count + n
	}
}

func (c *counts) forgetAll() { clear(c.byAccount) }
