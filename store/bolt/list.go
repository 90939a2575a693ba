package bolt

import (
	"bytes"

	"go.etcd.io/bbolt"
)

// descend calls visit with the tail of each key that begins with prefix, and its
// value, in descending order, beginning below after if that is not empty, until
// visit returns false.
func descend(bucket *bbolt.Bucket, prefix []byte, after string, visit func(tail, value []byte) bool) {
	c := bucket.Cursor()
	var k, v []byte
	if above := upper(prefix, after); above == nil {
		k, v = c.Last()
	} else if k, _ = c.Seek(above); k == nil {
		k, v = c.Last()
	} else {
		k, v = c.Prev()
	}
	for ; bytes.HasPrefix(k, prefix); k, v = c.Prev() {
		if !visit(k[len(prefix):], v) {
			return
		}
	}
}

// upper returns the first key that is not to be visited, or nil if there is none.
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
