package groupcommit

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"
)

// A Tx is the transaction in which steps run. Steps must write through it, so that it records
// which steps have written. They may read the bbolt transaction directly.
type Tx struct {
	Bolt    *bbolt.Tx // for reading
	dirty   bool      // whether the current step has written
	applied []func()
}

// AfterCommit registers a function to run after the commit. Functions run in the order of
// registration. Use AfterCommit to change state in memory, so that such changes happen in the order
// of the commits.
func (t *Tx) AfterCommit(apply func()) { t.applied = append(t.applied, apply) }

// MarkWritten records that the current step has changed data in the batch that Flush will write.
// If the step fails, the transaction is rolled back.
func (t *Tx) MarkWritten() { t.dirty = true }

func (t *Tx) Put(bucket, key, value []byte) error {
	t.dirty = true
	return t.Bolt.Bucket(bucket).Put(key, value)
}

// Append is like Put, for keys in ascending order. It fills pages almost completely.
func (t *Tx) Append(bucket, key, value []byte) error {
	t.dirty = true
	b := t.Bolt.Bucket(bucket)
	b.FillPercent = 0.95
	return b.Put(key, value)
}

// Delete deletes a key if it exists.
func (t *Tx) Delete(bucket, key []byte) error {
	t.dirty = true
	return t.Bolt.Bucket(bucket).Delete(key)
}

func (t *Tx) DeleteAll(bucket []byte, keys [][]byte) error {
	for _, key := range keys {
		if err := t.Delete(bucket, key); err != nil {
			return err
		}
	}
	return nil
}

// DeleteBefore deletes up to *left rows whose keys begin with a number below before, and subtracts
// the number of deleted rows from *left.
func (t *Tx) DeleteBefore(bucket []byte, before uint64, left *int) error {
	var old [][]byte // delete after the loop: a cursor skips keys after a deletion
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

// PutOrDelete stores a value. If value is nil, it deletes the key.
func (t *Tx) PutOrDelete(bucket, key, value []byte) error {
	if value == nil {
		return t.Delete(bucket, key)
	}
	return t.Put(bucket, key, value)
}

// Get returns the value of a key, or nil. The value is valid until the next write.
func (t *Tx) Get(bucket, key []byte) []byte { return t.Bolt.Bucket(bucket).Get(key) }

// apply runs the functions registered with AfterCommit.
func (t *Tx) apply() {
	for _, apply := range t.applied {
		apply()
	}
}
