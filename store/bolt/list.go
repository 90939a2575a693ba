package bolt

import (
	"bytes"
	"crypto/subtle"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/cursor"
)

// descend calls visit for each key that begins with prefix, in descending order, until visit
// returns false. visit gets the rest of the key and the value. Unless after is empty, descend
// begins below the key of prefix and after.
func descend(bucket *bbolt.Bucket, prefix []byte, after string, visit func(tail, value []byte) bool) {
	c := bucket.Cursor()
	var k, v []byte
	if above := upper(prefix, after); above == nil {
		k, v = lastOf(c)
	} else {
		_, _ = c.Seek(above) // may end beyond the last key
		k, v = c.Prev()
	}
	for ; bytes.HasPrefix(k, prefix); k, v = c.Prev() {
		if !visit(k[len(prefix):], v) {
			return
		}
	}
}

// lastOf replaces [bbolt.Cursor.Last] for buckets without keys that begin with eight bytes 0xff.
// In a damaged file, Last may loop forever, because it treats any page that is not a leaf as a
// branch; Seek panics instead.
func lastOf(c *bbolt.Cursor) (k, v []byte) {
	_, _ = c.Seek(beyond)
	return c.Prev()
}

// seekBeyond returns the first row at or after key. It panics unless that row is greater than
// before: rows of a damaged page may be out of order, and a loop of seeks through them would never
// end.
func seekBeyond(c *bbolt.Cursor, before, key []byte) []byte {
	k, _ := c.Seek(key)
	if k != nil && bytes.Compare(k, before) <= 0 {
		panic(disorder)
	}
	return k
}

// disorder is the panic value for a damaged page whose rows are out of order.
const disorder = "the rows of a page are not in order"

var beyond = bytes.Repeat([]byte{0xff}, 8)

// upper returns the first key above the keys that descend visits, or nil if there is none.
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

// loadCursors reads the key that encrypts the file's cursors, or creates it. A restored file has a
// different key than its backup, so that it refuses cursors from before.
func (s *engine) loadCursors() error {
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
