package groupcommit

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"
)

// A Tx is the transaction in which steps run. They write through it, so that it is known
// which of them have written; they may read it directly.
type Tx struct {
	Bolt    *bbolt.Tx // for reading
	dirty   bool      // the current step has written
	applied []func()
}

// AfterCommit has apply run when the transaction is committed, in the order of the
// calls. Changes to what is kept in memory go here, so that they follow the order of the
// file.
func (t *Tx) AfterCommit(apply func()) { t.applied = append(t.applied, apply) }

// MarkWritten notes that the current step has changed what the batch will flush: if the
// step fails, the transaction is undone.
func (t *Tx) MarkWritten() { t.dirty = true }

// Put stores a value.
func (t *Tx) Put(bucket, key, value []byte) error {
	t.dirty = true
	return t.Bolt.Bucket(bucket).Put(key, value)
}

// Append is Put for keys that only grow: it packs pages full.
func (t *Tx) Append(bucket, key, value []byte) error {
	t.dirty = true
	b := t.Bolt.Bucket(bucket)
	b.FillPercent = 0.95
	return b.Put(key, value)
}

// Delete deletes a key, if it exists.
func (t *Tx) Delete(bucket, key []byte) error {
	t.dirty = true
	return t.Bolt.Bucket(bucket).Delete(key)
}

// DeleteAll deletes keys.
func (t *Tx) DeleteAll(bucket []byte, keys [][]byte) error {
	for _, key := range keys {
		if err := t.Delete(bucket, key); err != nil {
			return err
		}
	}
	return nil
}

// DeleteBefore deletes rows whose keys begin with a number before that one, at most left, which it counts down.
func (t *Tx) DeleteBefore(bucket []byte, before uint64, left *int) error {
	var old [][]byte // not deleted at once: a cursor skips keys after that
	c := t.Bolt.Bucket(bucket).Cursor()
	for k, _ := c.First(); k != nil && *left > 0; k, _ = c.Next() {
		if len(k) >= 8 && binary.BigEndian.Uint64(k) >= before {
			break
		}
		old = append(old, bytes.Clone(k))
		*left--
	}
	return t.DeleteAll(bucket, old)
}

// PutOrDelete stores a value, or deletes the key if value is nil.
func (t *Tx) PutOrDelete(bucket, key, value []byte) error {
	if value == nil {
		return t.Delete(bucket, key)
	}
	return t.Put(bucket, key, value)
}

// Get returns the value of a key, nil if there is none. It is valid until the next write.
func (t *Tx) Get(bucket, key []byte) []byte { return t.Bolt.Bucket(bucket).Get(key) }

// apply runs what AfterCommit was given.
func (t *Tx) apply() {
	for _, apply := range t.applied {
		apply()
	}
}
