package bolt

import (
	"crypto/subtle"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/cursor"
)

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
