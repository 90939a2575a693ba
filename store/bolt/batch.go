package bolt

import "go.etcd.io/bbolt"

// A batch is one transaction and the steps in it.
type batch struct {
	tx    *bbolt.Tx
	dirty bool // the current step has written

	// done is run, in order, when the transaction is committed. What steps do
	// to the queue goes here, so that it follows the order of the file.
	done []func()

	// What is written once for many steps: a step that reads of it flushes it
	// before.
	draft          *draft
	fresh, skipped marks

	// alerts is what they left of alerts, by row: the memory of them does not
	// know it yet.
	alerts map[string][]byte

	deleted []string // webhooks
}

// newBatch returns an empty one. There is one at a time to a draft.
func newBatch(tx *bbolt.Tx, d *draft) *batch {
	d.reset()
	return &batch{tx: tx, draft: d, fresh: marks{bucket: bucketFresh}, skipped: marks{bucket: bucketSkipped}}
}

// flush writes what earlier steps have left to be written.
func (b *batch) flush() error {
	if err := b.writeDraft(); err != nil {
		return err
	}
	if err := b.fresh.write(b); err != nil {
		return err
	}
	return b.skipped.write(b)
}

func (b *batch) put(bucket, key, value []byte) error {
	b.dirty = true
	return b.tx.Bucket(bucket).Put(key, value)
}

// add is put for keys that only grow: it packs pages full.
func (b *batch) add(bucket, key, value []byte) error {
	b.dirty = true
	bk := b.tx.Bucket(bucket)
	bk.FillPercent = 0.95
	return bk.Put(key, value)
}

func (b *batch) delete(bucket, key []byte) error {
	b.dirty = true
	return b.tx.Bucket(bucket).Delete(key)
}

// putOrDelete puts a value, or deletes the key if there is none.
func (b *batch) putOrDelete(bucket, key, value []byte) error {
	if value == nil {
		return b.delete(bucket, key)
	}
	return b.put(bucket, key, value)
}

func (b *batch) deleteAll(bucket []byte, keys [][]byte) error {
	for _, key := range keys {
		if err := b.delete(bucket, key); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) get(bucket, key []byte) []byte { return b.tx.Bucket(bucket).Get(key) }

// finish runs what was to be done after the commit.
func (b *batch) finish() {
	for _, done := range b.done {
		done()
	}
}
