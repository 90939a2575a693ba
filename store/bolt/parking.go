package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// parking keeps bbolt's free list short. bbolt writes the whole list with each commit, at 8 bytes
// per free page: a megabyte or more after a purge of millions of events.
//
// After a purge step, free pages are parked: moved into extents, which are buckets in bucketSpare
// with one value of zeros each. A commit that parks pages fails if it would grow the file; the
// next one tries smaller extents. When the list becomes too short, or the file grew because no run
// of free pages was long enough, the largest extents are deleted. That frees their pages without
// writing them.
//
// bbolt's option NoFreelistSync is no alternative: with it, bbolt scans the whole file at Open,
// and again after each failed commit, while it holds the writer lock.
type parking struct {
	pageSize       int
	listed, parked atomic.Int64 // free pages as of the last commit: in the free list, in extents

	// Only steps may use the following fields; the writer runs one step at a time.
	extent      int    // size of the next extent in pages
	making      int    // pages of the extents made by the current transaction
	end         uint64 // size of the file in pages as of the last commit
	grew        bool   // the last commit grew the file
	skip, fails int    // purge steps still to skip; consecutive failures with extents of one page
}

const (
	firstExtent, maxExtent = 64, 128 // pages
	parkedAtOnce           = 512     // pages per step: writing them delays other steps
	unparkedAtGrowth       = 256     // pages
	maxListAtGrowth        = 2000    // pages: if so many are free, readers hold them
	maxSkip                = 6       // exponent: at most 64 purge steps are skipped

	// keptInPurge is the number of free pages that stay in the list during a purge. The next purge
	// steps free neighbors of such a page, so that it becomes part of a long run before it is
	// parked.
	keptInPurge = 8000

	allocSize = 16 << 20 // growth of the file in bytes: bbolt's default
)

var (
	extentKey   = []byte{0} // key of an extent's only value
	extentZeros [1 << 20]byte
)

// load counts the free pages of the file.
func (p *parking) load(s *engine) error {
	p.extent = firstExtent
	return s.db.View(func(tx *bbolt.Tx) error {
		p.committed(s.file, tx.ID())
		extents := tx.Bucket(bucketSpare)
		if extents == nil {
			return nil
		}
		return extents.ForEachBucket(func(k []byte) error {
			p.parked.Add(int64(extentPages(k)))
			return nil
		})
	})
}

// committed records the length of the free list and the size of the file after transaction tx.
func (p *parking) committed(file io.ReaderAt, tx int) {
	list, ok := pagefile.ReadFreeList(file, p.pageSize, tx)
	if !ok {
		return
	}
	p.listed.Store(int64(list.Pages))
	p.grew = p.end > 0 && list.End > p.end
	p.end = list.End
}

// freeBytes returns the size of the file's free pages in bytes.
func (p *parking) freeBytes() int64 { return (p.listed.Load() + p.parked.Load()) * int64(p.pageSize) }

// extentPages returns the size of an extent in pages. The extent's key consists of this size and a
// unique number.
func extentPages(key []byte) int { return int(binary.BigEndian.Uint64(key)) }

// park parks free pages if the free list takes more than a page, or, during a purge, more than
// keptInPurge entries. It reports whether more pages may be left to park. It returns no error,
// because commits also work with a longer list.
func (s *engine) park(ctx context.Context, purging bool) (more bool) {
	keep := pagefile.FreeListPage(s.parking.pageSize)
	if purging {
		keep = keptInPurge
	}
	if int(s.parking.listed.Load()) <= keep {
		return false
	}
	err := s.writer.RunAlone(ctx, func(b *batch) (err error) {
		more, err = b.park(keep)
		return err
	})
	return more && (err == nil || errors.Is(err, bbolterrors.ErrMaxSizeReached))
}

func (b *batch) park(keep int) (more bool, err error) {
	p := &b.store.parking
	size := min(p.extent, len(extentZeros)/p.pageSize)
	count := min(int(p.listed.Load())-keep, parkedAtOnce) / size
	if count <= 0 {
		return false, nil
	}
	if p.skip > 0 {
		p.skip--
		return false, nil
	}
	b.unparked = true
	b.MarkWritten()
	extents, err := b.tx.CreateBucketIfNotExists(bucketSpare)
	if err != nil {
		return false, err
	}
	for range count {
		number, err := extents.NextSequence()
		if err != nil {
			return false, err
		}
		key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(size)), number)
		extent, err := extents.CreateBucket(key)
		if err != nil {
			return false, err
		}
		if err := extent.Put(extentKey, extentZeros[:size*p.pageSize-64]); err != nil {
			return false, err
		}
	}
	// Limit the size of the file: growing it might wait for readers, because bbolt must map it
	// again. But allow some growth, because the list itself needs a run of pages, and a long list
	// may not find one.
	db := b.tx.DB()
	slack := int(p.listed.Load())/pagefile.FreeListPage(p.pageSize) + 8
	db.AllocSize, db.MaxSize = 0, int(b.tx.Size())+slack*p.pageSize
	p.making, p.extent = count*size, size
	return true, nil
}

// ended chooses the size of the next extents; it is called after each transaction. If extents did
// not fit, it halves their size: there are too few runs of free pages of that length, or readers
// still need the pages.
func (p *parking) ended(done bool) {
	switch {
	case p.making == 0:
		return
	case done:
		p.parked.Add(int64(p.making))
		p.extent, p.fails = min(2*p.extent, maxExtent), 0
	case p.extent > 1:
		p.extent /= 2
	default:
		p.skip = 1 << min(p.fails, maxSkip)
		p.fails++
	}
	p.making = 0
}

// unpark deletes extents if the free list is short, or if the last commit grew the file while
// pages were parked. Each transaction calls it once, before it writes.
func (b *batch) unpark() error {
	if b.unparked {
		return nil
	}
	b.unparked = true
	p := &b.store.parking
	listed, high, want := int(p.listed.Load()), pagefile.FreeListPage(p.pageSize), 0
	if listed < high/2 {
		want = high - listed
	}
	if p.grew && listed < maxListAtGrowth {
		want = max(want, unparkedAtGrowth)
	}
	extents := b.tx.Bucket(bucketSpare)
	if want == 0 || extents == nil {
		return nil
	}
	var keys [][]byte // deleted after the loop: a cursor skips keys after a deletion
	freed := 0
	c := extents.Cursor()
	for k, _ := lastOf(c); k != nil && freed < want; k, _ = c.Prev() {
		keys = append(keys, bytes.Clone(k))
		freed += extentPages(k)
	}
	if len(keys) == 0 {
		return nil
	}
	b.MarkWritten() // so that the deletions are committed even if the step only reads
	for _, k := range keys {
		if err := extents.DeleteBucket(k); err != nil {
			return err
		}
	}
	b.AfterCommit(func() { p.parked.Add(-int64(freed)) })
	return nil
}
