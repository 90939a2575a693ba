package bolt

import (
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/cursor"
)

// loadCursors reads the file's key of cursors, and makes one if it has none.
func (s *Store) loadCursors() error {
	known := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		known = copy(s.cursors[:], tx.Bucket(bucketMeta).Get(keyCursors)) == len(s.cursors)
		return nil
	})
	if err != nil || known {
		return err
	}
	s.cursors = cursor.NewKey()
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyCursors, s.cursors[:]) })
}
