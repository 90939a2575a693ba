package bolt

import (
	"slices"

	"go.etcd.io/bbolt"
)

// WithUpgrade adds an upgrade to a schema of a test's own, which changes the values of a
// bucket, as many as limit in a transaction.
func WithUpgrade(bucket string, limit int, change func(value []byte) ([]byte, error)) Option {
	return func(s *Store) {
		s.upgrader.steps = append(slices.Clip(s.upgrader.steps), changeRows([]byte(bucket), limit, change))
	}
}

// WithIndexUpgrade adds an upgrade to a schema of a test's own, which fills an index of the
// keys by when they expire, in transactions of as many rows as limit, and calls look for each key.
func WithIndexUpgrade(index string, limit int, look func()) Option {
	return func(s *Store) {
		fill := func(index string) upgrade {
			return indexRows(bucketKeys, []byte(index), limit, func(buffer, key, value []byte) ([]byte, []byte) {
				look()
				return expiryOf(buffer, key, value)
			})
		}
		s.upgrader.steps = append(slices.Clip(s.upgrader.steps), inOrder(fill(index+" before"), fill(index)))
	}
}

// LogNotices is a step of the upgrade to schema 8.
func LogNotices(tx *bbolt.Tx, from []byte, limit int) (next []byte, err error) {
	return logNotices(limit)(tx, from)
}
