// Package rows reads the rows of a bucket in order.
package rows

import (
	"bytes"
	"iter"
	"math"

	"go.etcd.io/bbolt"
)

// WithPrefix returns the rows whose keys begin with prefix, in ascending order. The bucket must not
// change during the iteration: a cursor skips keys after a deletion.
func WithPrefix(bucket *bbolt.Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := bucket.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix) && yield(k, v); {
			k, v = c.Next()
		}
	}
}

// Count returns the number of keys that begin with prefix.
func Count(bucket *bbolt.Bucket, prefix []byte) (n int) {
	for range WithPrefix(bucket, prefix) {
		n++
	}
	return n
}

// Keys returns copies of the first keys that begin with prefix, at most limit.
func Keys(bucket *bbolt.Bucket, prefix []byte, limit int) (keys [][]byte) {
	for k := range WithPrefix(bucket, prefix) {
		if len(keys) == limit {
			break
		}
		keys = append(keys, bytes.Clone(k))
	}
	return keys
}

// AllKeys returns copies of all keys that begin with prefix.
func AllKeys(bucket *bbolt.Bucket, prefix []byte) [][]byte { return Keys(bucket, prefix, math.MaxInt) }

// Descend yields the rows whose keys begin with prefix, in descending order: each key without the
// prefix, and its value. If after is not empty, Descend yields only keys below prefix+after.
func Descend(bucket *bbolt.Bucket, prefix []byte, after string) iter.Seq2[[]byte, []byte] {
	return func(yield func(tail, value []byte) bool) {
		c := bucket.Cursor()
		var k, v []byte
		if above := upper(prefix, after); above == nil {
			k, v = Last(c)
		} else {
			_, _ = c.Seek(above) // may end beyond the last key
			k, v = c.Prev()
		}
		for k != nil && bytes.HasPrefix(k, prefix) && yield(k[len(prefix):], v) {
			k, v = c.Prev()
		}
	}
}

// upper returns the first key above the keys that Descend returns, or nil if there is none.
func upper(prefix []byte, after string) []byte {
	if after != "" {
		return append(bytes.Clone(prefix), after...)
	}
	above := bytes.Clone(prefix)
	for i := len(above) - 1; i >= 0; i-- {
		if above[i]++; above[i] != 0 {
			return above[:i+1]
		}
	}
	return nil
}

// Beyond is greater than every key that does not begin with eight bytes 0xff.
var Beyond = bytes.Repeat([]byte{0xff}, 8)

// Last replaces [bbolt.Cursor.Last] for keys below [Beyond]. In a damaged file, bbolt's Last may
// loop forever, because it treats any page that is not a leaf as a branch; Seek panics instead.
func Last(c *bbolt.Cursor) (k, v []byte) {
	_, _ = c.Seek(Beyond)
	return c.Prev()
}

// SeekBeyond returns the first key at or after key. It panics if the result is not greater than
// before: in a damaged page, rows may be out of order, and a loop of seeks might never end.
func SeekBeyond(c *bbolt.Cursor, before, key []byte) []byte {
	k, _ := c.Seek(key)
	if k != nil && bytes.Compare(k, before) <= 0 {
		panic("the rows of a page are out of order")
	}
	return k
}
