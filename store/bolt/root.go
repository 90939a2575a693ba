package bolt

import (
	"bytes"
	"context"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// rootOf returns the root bucket, which contains all other buckets.
func rootOf(tx *bbolt.Tx) *bbolt.Bucket { return tx.Cursor().Bucket() }

// mergeRoot merges the root bucket into one page if it has several pages and would fit into one.
//
// Each commit writes the root bucket, and small buckets are inline in it. If many buckets are
// small at once, as with a few keys and webhooks, or briefly at the end of a purge, bbolt splits
// the root bucket into a branch and two leaves. From then on, most commits would write all three
// pages: bbolt merges a leaf only after a deletion that leaves it less than a quarter full, and
// buckets are not deleted. So mergeRoot deletes the small buckets and creates them again in the
// same transaction. When bbolt checks the leaves, at the commit, the new buckets have no rows in
// them yet. This takes a separate transaction, because other steps have cursors in those buckets.
//
// A split leaves the first leaf fuller than the second, see [engine.newBatch], so that most
// commits do not write the second.
//
// mergeRoot returns no error: a later call tries again, and commits also work with a split root.
func (s *engine) mergeRoot(ctx context.Context) { _ = s.writer.RunAlone(ctx, (*batch).mergeRoot) }

// rootIsSplit reports whether the root bucket has several pages. Only the writer's steps may call
// it, because bbolt reads the list of free pages for it without a lock.
func rootIsSplit(tx *bbolt.Tx) bool {
	page, err := tx.Page(int(rootOf(tx).Root()))
	return err == nil && page != nil && page.Type == "branch"
}

func (b *batch) mergeRoot() error {
	root := rootOf(b.tx)
	if !rootIsSplit(b.tx) {
		return nil
	}
	size := pagefile.HeaderSize
	var inline []inlineBucket
	err := b.tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		size += rowHeader + len(name) + bucketHeader
		if bucket.Root() != 0 {
			return nil
		}
		i := inlineBucket{name: bytes.Clone(name), sequence: bucket.Sequence()}
		size += pagefile.HeaderSize
		inline = append(inline, i)
		return bucket.ForEach(func(k, v []byte) error {
			size += rowHeader + len(k) + len(v)
			rows := &inline[len(inline)-1].rows
			*rows = append(*rows, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
			return nil
		})
	})
	if err != nil || size > b.store.parking.pageSize*7/8 {
		return err
	}
	b.MarkWritten()
	for _, i := range inline {
		if err := i.replace(root); err != nil {
			return err
		}
	}
	return nil
}

// Sizes in bytes of bbolt's header of a leaf row, and of a bucket's value.
const rowHeader, bucketHeader = 16, 16

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
