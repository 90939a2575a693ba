package bolt

import (
	"bytes"
	"context"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// rootOf returns the bucket that has all others.
func rootOf(tx *bbolt.Tx) *bbolt.Bucket { return tx.Cursor().Bucket() }

// mergeRoot makes the bucket that has all others one page again, if it has several and would fit.
//
// Each commit writes that bucket. What is in a small bucket stands in it, and where many are at once, as with some keys
// and webhooks, or for a moment at the end of a purge, bbolt splits it into a branch and two leaves. Most commits then
// write all three, and would for ever: bbolt merges a leaf only if something was deleted from it that leaves it
// less than a quarter full, and buckets are not deleted. So the small ones are, and are made again in the same
// transaction: when bbolt looks, at the commit, they have no rows yet. The transaction is its own, for others
// have cursors in those buckets.
//
// Splits leave the first leaf fuller than the second, see [Store.newBatch], so that most commits do not write that one.
//
// That it failed is no error of the caller's: it will be tried again, and commits go on.
func (s *Store) mergeRoot(ctx context.Context) { _ = s.writer.RunAlone(ctx, (*batch).mergeRoot) }

// rootIsSplit reports whether the bucket that has all others has several pages. It is for the writer's steps:
// bbolt looks at its free pages for that, too, without a lock.
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

// What bbolt puts before the row of a leaf, and as the value of a bucket.
const rowHeader, bucketHeader = 16, 16

// An inlineBucket is a small one, which has no page of its own.
type inlineBucket struct {
	name     []byte
	sequence uint64
	rows     [][2][]byte
}

// replace deletes the bucket and makes it again.
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
