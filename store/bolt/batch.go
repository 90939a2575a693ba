package bolt

import (
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// A batch is what the steps of one transaction share. What is written once for many
// steps is in memory until Flush: a step that reads of it flushes it before.
type batch struct {
	*groupcommit.Tx
	store *Store
	tx    *bbolt.Tx // for reading

	segment        *record.SegmentBuilder // the open one: what steps have published
	attempts       *record.Packer
	late           []row  // attempts that are not packed
	published      int    // bytes in bucketEvents since the dividers were moved
	divided        uint64 // the number after which they are; 0: as in the store
	fresh, skipped bitmaps

	// What becomes of deliveries' failing, by key in bucketFailed and number.
	failed map[string]map[uint64]bool

	keyCache *keyCache

	// The IDs of what steps have published, and whether some of a run were written.
	ids      idNumbers
	addedIDs []record.IDEntry
	wroteIDs bool

	// alerts is what they left of alerts, by row: the memory of them does not
	// know it yet.
	alerts map[string][]byte

	webhooks webhookChanges
	closed   map[string]bool // accounts whose erasure has begun

	refilled    bool // see [batch.refill]
	maintaining bool // what this one takes says nothing about those to come
}

// newBatch returns an empty one. There is one at a time.
func (s *Store) newBatch(tx *groupcommit.Tx) *batch {
	s.segment.Reset()
	s.attempts.Reset()
	s.spare.limit(tx)
	rootOf(tx.Bolt).FillPercent = 0.75 // see [batch.mergeRoot]
	return &batch{
		Tx: tx, store: s, tx: tx.Bolt, segment: &s.segment, attempts: &s.attempts,
		keyCache: s.keyCache, fresh: bitmaps{bucket: bucketFresh}, skipped: bitmaps{bucket: bucketSkipped},
	}
}

// Flush writes what earlier steps have left to be written.
func (b *batch) Flush() error {
	if err := b.refill(); err != nil {
		return err
	}
	if err := b.store.markCopies(b); err != nil {
		return err
	}
	if err := b.writeSegment(); err != nil {
		return err
	}
	if err := b.moveDividers(); err != nil {
		return err
	}
	if err := b.fresh.write(b); err != nil {
		return err
	}
	if err := b.skipped.write(b); err != nil {
		return err
	}
	if err := b.writeAttempts(); err != nil {
		return err
	}
	if err := b.writeFailed(); err != nil {
		return err
	}
	return b.store.writeIDs(b)
}
