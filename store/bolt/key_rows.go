package bolt

import (
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// defaultCachedKeys exceeds the number of keys that most services see in a day.
const defaultCachedKeys = 1 << 18

// keyRows caches rows of the bucket of keys, by current or previous hash, in the form that
// [record.DecodeKeyRow] expects.
type keyRows = mirror.Mirror[driver.Hash, string]

func newKeyRows(count int) *keyRows {
	return mirror.New[driver.Hash](mirror.Options[string]{Max: count, Shards: min(64, 1+count/64), Second: true})
}

// maxCounts is the maximum number of accounts whose counts are cached.
const maxCounts = 10_000

// counts caches the number of keys of each account, so that a check of the key limit need not count
// the keys. Only write transactions use it.
type counts struct {
	rows *mirror.Mirror[string, int] // by account
}

func newCounts() counts {
	return counts{mirror.New[string](mirror.Options[int]{Max: maxCounts})}
}

// of returns the number of the account's keys.
func (c *counts) of(tx *groupcommit.Tx, account string) int {
	count, ok := c.rows.InStep(account)
	if !ok {
		count = rows.Count(tx.Bolt.Bucket(schema.Accounts), record.AccountKey(account, ""))
		c.rows.Keep(account, count)
	}
	return count
}

// add changes the account's count by n, which may be negative. Call it before the keys are created
// or deleted.
func (c *counts) add(tx *groupcommit.Tx, account string, n int) {
	if count, ok := c.rows.InStep(account); ok {
		c.rows.Set(tx, account, count+n)
	} else {
		c.rows.Drop(tx, account)
	}
}
