package bolt

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// maxCensus bounds how many accounts a census remembers.
const maxCensus = 10_000

// A census remembers how many rows accounts have in a bucket, whose keys are
// prefixed accounts and ids: a limit is to be checked without counting each time.
// As with subscriptions, only steps of the writer use it; those that add or remove
// rows tell it, and a transaction that is undone makes it forget all.
type census struct {
	bucket []byte
	kind   string         // with which the rows begin, before the account
	counts map[string]int // by account
}

// of returns how many rows the account has.
func (c *census) of(tx *bbolt.Tx, account string) int {
	if count, known := c.counts[account]; known {
		return count
	}
	if c.counts == nil || len(c.counts) >= maxCensus {
		c.counts = make(map[string]int)
	}
	count, prefix := 0, append([]byte(c.kind), record.Prefixed(account, "")...)
	rows := tx.Bucket(c.bucket).Cursor()
	for k, _ := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = rows.Next() {
		count++
	}
	c.counts[account] = count
	return count
}

// add tells of rows that were added, or removed if n is negative.
func (c *census) add(account string, n int) {
	if count, known := c.counts[account]; known {
		c.counts[account] = count + n
	}
}

func (c *census) forgetAll() { clear(c.counts) }
