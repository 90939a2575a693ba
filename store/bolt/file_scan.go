package bolt

import (
	"bytes"
	"context"
)

// UpdateFileScan implements [webhooks.Store]. The state is a row of meta.
func (s *Store) UpdateFileScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	return s.writer.Run(ctx, func(b *batch) error {
		before := bytes.Clone(b.Get(bucketMeta, keyFileScan))
		state, err := change(bytes.Clone(before))
		if err != nil || bytes.Equal(state, before) {
			return err
		}
		return b.PutOrDelete(bucketMeta, keyFileScan, bytes.Clone(state))
	})
}
