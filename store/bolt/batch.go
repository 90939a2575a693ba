package bolt

import (
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
)

// A batch is what the steps of one transaction share. What is written once for many
// steps is in memory until Flush: a step that reads of it flushes it before.
type batch struct {
	*groupcommit.Tx
	tx *bbolt.Tx // for reading

	draft          *draft
	fresh, skipped marks

	// alerts is what they left of alerts, by row: the memory of them does not
	// know it yet.
	alerts map[string][]byte

	deleted []string // webhooks
}

// newBatch returns an empty one. There is one at a time.
func (s *Store) newBatch(tx *groupcommit.Tx) *batch {
	s.draft.reset()
	return &batch{Tx: tx, tx: tx.Bolt, draft: &s.draft, fresh: marks{bucket: bucketFresh}, skipped: marks{bucket: bucketSkipped}}
}

// Flush writes what earlier steps have left to be written.
func (b *batch) Flush() error {
	if err := b.writeDraft(); err != nil {
		return err
	}
	if err := b.fresh.write(b); err != nil {
		return err
	}
	return b.skipped.write(b)
}
