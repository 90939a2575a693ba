package bolt

import (
	"bytes"
	"crypto/subtle"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/cursor"
)

// descend calls visit with the tail of each key that begins with prefix, and its
// value, in descending order, beginning below after if that is not empty, until
// visit returns false.
func descend(bucket *bbolt.Bucket, prefix []byte, after string, visit func(tail, value []byte) bool) {
	c := bucket.Cursor()
	var k, v []byte
	if above := upper(prefix, after); above == nil {
		k, v = lastOf(c)
	} else {
		_, _ = c.Seek(above) // or beyond the last
		k, v = c.Prev()
	}
	for ; bytes.HasPrefix(k, prefix); k, v = c.Prev() {
		if !visit(k[len(prefix):], v) {
			return
		}
	}
}

// lastOf is [bbolt.Cursor.Last] for keys that do not begin with eight bytes 0xff. Last takes any page
// for a branch that is not a leaf, and in a damaged file may go from one to the next forever; Seek panics.
func lastOf(c *bbolt.Cursor) (k, v []byte) {
	_, _ = c.Seek(beyond)
	return c.Prev()
}

// seekBeyond returns the row at key or the first one behind it, which must be behind the row
// before, too: otherwise it panics. A damaged page may have its rows in any order, and a loop
// of seeks through it would not end.
func seekBeyond(c *bbolt.Cursor, before, key []byte) []byte {
	k, _ := c.Seek(key)
	if k != nil && bytes.Compare(k, before) <= 0 {
		panic(disorder)
	}
	return k
}

// disorder is what is panicked with where a page is damaged.
const disorder = "the rows of a page are not in order"

var beyond = bytes.Repeat([]byte{0xff}, 8)

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

// loadCursors reads the file's key of cursors, and makes one if it has none. A restored file
// has another one than the backup.
func (s *Store) loadCursors() error {
	known := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		known = copy(s.cursors[:], meta.Get(keyCursors)) == len(s.cursors)
		if salt := meta.Get(keyRestored); known && len(salt) == len(s.cursors) {
			subtle.XORBytes(s.cursors[:], s.cursors[:], salt)
		}
		return nil
	})
	if err != nil || known {
		return err
	}
	s.cursors = cursor.NewKey()
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyCursors, s.cursors[:]) })
}
