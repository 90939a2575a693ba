package bolt

import "slices"

// WithUpgrade adds an upgrade to a schema of a test's own, which changes the values of a
// bucket, as many as limit in a transaction.
func WithUpgrade(bucket string, limit int, change func(value []byte) ([]byte, error)) Option {
	return func(s *Store) {
		s.upgrader.steps = append(slices.Clip(s.upgrader.steps), changeRows([]byte(bucket), limit, change))
	}
}
