package pagefile

import (
	"bytes"

	"go.etcd.io/bbolt"
)

// Root returns the root bucket, which contains all other buckets.
func Root(tx *bbolt.Tx) *bbolt.Bucket { return tx.Cursor().Bucket() }

// RootFill is the fraction of a page that a split of the root bucket leaves in the first leaf. With
// it, most commits do not write the second leaf, see [MergeRoot].
const RootFill = 0.75

// MergeRoot merges the root bucket into one page if it has several pages and would fit into one. It
// calls before before the first change.
//
// Each commit writes the root bucket, and small buckets are inline in it. If many buckets are small
// at once, as with a few keys and webhooks, or briefly at the end of a purge, bbolt splits the root
// bucket into a branch and two leaves. From then on, most commits would write all three pages:
// bbolt merges a leaf only after a deletion that leaves it less than a quarter full, and buckets
// are not deleted. So MergeRoot deletes the small buckets and creates them again in the same
// transaction. When bbolt checks the leaves, at the commit, they do not contain the rows of the new
// buckets yet. No other code may have cursors in those buckets.
func MergeRoot(tx *bbolt.Tx, before func()) error {
	if !RootIsSplit(tx) {
		return nil
	}
	size := HeaderSize
	var inline []inlineBucket
	err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		size += ElementSize + len(name) + BucketSize
		if bucket.Root() != 0 {
			return nil
		}
		i := inlineBucket{name: bytes.Clone(name), sequence: bucket.Sequence()}
		size += HeaderSize
		inline = append(inline, i)
		return bucket.ForEach(func(k, v []byte) error {
			size += ElementSize + len(k) + len(v)
			rows := &inline[len(inline)-1].rows
			*rows = append(*rows, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
			return nil
		})
	})
	if err != nil || size > tx.DB().Info().PageSize*7/8 {
		return err
	}
	before()
	for _, i := range inline {
		if err := i.replace(Root(tx)); err != nil {
			return err
		}
	}
	return nil
}

// RootIsSplit reports whether the root bucket has several pages. Call it only in a write
// transaction, because it reads the list of free pages without a lock.
func RootIsSplit(tx *bbolt.Tx) bool {
	page, err := tx.Page(int(Root(tx).Root()))
	return err == nil && page != nil && page.Type == "branch"
}

// An inlineBucket is a copy of a small bucket, which has no page of its own.
type inlineBucket struct {
	name     []byte
	sequence uint64
	rows     [][2][]byte
}

// replace deletes the bucket and creates it again with the same rows.
func (i *inlineBucket) replace(root *bbolt.Bucket) error {
	if err := root.DeleteBucket(i.name); err != nil {
		return err
	}
	bucket, err := root.CreateBucket(i.name)
	if err != nil {
		return err
	}
	if err := bucket.SetSequence(i.sequence); err != nil {
		return err
	}
	for _, row := range i.rows {
		if err := bucket.Put(row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}
