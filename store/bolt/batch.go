package bolt

import (
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
)

// A batch is what the steps of one transaction share. What is written once for many
// steps is in memory until Flush: a step that reads of it flushes it before.
type batch struct {
	*groupcommit.Tx
	store *Store
	log   *eventlog.Step
	tx    *bbolt.Tx // for reading

	keyRows *keyRows

	// alerts is what they left of alerts, by row: the memory of them does not
	// know it yet.
	alerts map[string][]byte

	closed map[string]bool // accounts whose erasure has begun

	unparked bool // see [batch.unpark]
}

// newBatch returns an empty one. There is one at a time.
func (s *Store) newBatch(tx *groupcommit.Tx, log *eventlog.Writer) *batch {
	s.db.AllocSize, s.db.MaxSize = allocSize, 0 // [batch.park] sets them
	id := tx.Bolt.ID()
	tx.AfterCommit(func() { s.parking.committed(s.file, id) })
	rootOf(tx.Bolt).FillPercent = 0.75 // see [batch.mergeRoot]
	b := &batch{Tx: tx, store: s, tx: tx.Bolt, keyRows: s.keyRows}
	b.log = log.Begin(tx, func() error { return s.mark(b, markBusy) })
	return b
}

// Flush writes what earlier steps have left to be written.
func (b *batch) Flush() error {
	if err := b.unpark(); err != nil {
		return err
	}
	if err := b.store.markCopies(b); err != nil {
		return err
	}
	return b.log.Flush()
}
