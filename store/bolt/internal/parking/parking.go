// Package parking keeps bbolt's free list short. bbolt writes the whole list with each commit, at 8
// bytes per free page: a megabyte or more after a purge of millions of events.
//
// After a purge step, free pages are parked: moved into extents, which are buckets in schema.Spare
// with one value of zeros each. A commit that parks pages fails if the extents do not fit into free
// pages; the next commit that parks pages tries smaller extents. When the list becomes too short,
// or the file grew because no run of free pages was long enough, the largest extents are deleted,
// which frees their pages without writing them.
//
// bbolt's option NoFreelistSync is no alternative: with it, bbolt scans the whole file at Open, and
// again after each failed commit, while it holds the writer lock.
package parking

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// A Parking parks the free pages of a file.
type Parking struct {
	db             *bbolt.DB
	file           io.ReaderAt
	pageSize       int
	listed, parked atomic.Int64 // free pages as of the last commit: in the free list, in extents

	// Only a Step, Begin and Ended may use the following fields; transactions do not overlap.
	extent      int    // size of the next extent in pages
	making      int    // pages of the extents made by the current transaction
	end         uint64 // size of the file in pages as of the last commit
	grew        bool   // the last commit grew the file
	skip, fails int    // purge steps still to skip; consecutive failures with extents of one page
}

const (
	// MaxExtent is the maximum size of an extent in pages.
	MaxExtent   = 128
	firstExtent = 64

	parkedAtOnce     = 512  // pages per step: writing them delays other steps
	unparkedAtGrowth = 256  // pages
	maxListAtGrowth  = 2000 // pages; if the file grew despite a longer list, readers hold the free pages

	// MaxSkip is the maximum exponent of skip, so that at most 64 purge steps are skipped.
	MaxSkip = 6

	// KeptInPurge is the number of free pages that stay in the list during a purge. The next purge
	// steps free the neighbors of these pages, so that the pages become parts of long runs before
	// they are parked.
	KeptInPurge = 8000

	allocSize = 16 << 20 // growth of the file in bytes: bbolt's default
)

var (
	extentKey   = []byte{0} // key of an extent's only value
	extentZeros [1 << 20]byte
)

// Open counts the free pages of an open file.
func Open(db *bbolt.DB, file io.ReaderAt) (*Parking, error) {
	p := &Parking{db: db, file: file, pageSize: db.Info().PageSize, extent: firstExtent}
	return p, db.View(func(tx *bbolt.Tx) error {
		p.committed(tx.ID())
		extents := tx.Bucket(schema.Spare)
		if extents == nil {
			return nil
		}
		return extents.ForEachBucket(func(k []byte) error {
			p.parked.Add(int64(ExtentPages(k)))
			return nil
		})
	})
}

// committed records the length of the free list and the size of the file after transaction tx.
func (p *Parking) committed(tx int) {
	list, ok := pagefile.ReadFreeList(p.file, p.pageSize, tx)
	if !ok {
		return
	}
	p.listed.Store(int64(list.Pages))
	p.grew = p.end > 0 && list.End > p.end
	p.end = list.End
}

// FreeBytes returns the size of the file's free pages in bytes, as of the last commit.
func (p *Parking) FreeBytes() int64 { return (p.listed.Load() + p.parked.Load()) * int64(p.pageSize) }

// ExtentPages returns the size of an extent in pages. The extent's key consists of this size and a
// unique number.
func ExtentPages(key []byte) int { return int(binary.BigEndian.Uint64(key)) }

// keep returns the number of free pages that may stay in the list: the capacity of one page of the
// list, or more during a purge.
func (p *Parking) keep(purging bool) int {
	if purging {
		return KeptInPurge
	}
	return pagefile.FreeListPage(p.pageSize)
}

// IsLong reports whether the free list is so long that pages should be parked.
func (p *Parking) IsLong(purging bool) bool { return int(p.listed.Load()) > p.keep(purging) }

// DidNotFit reports whether a commit failed with err because the extents did not fit into free
// pages. The next extents will be smaller.
func DidNotFit(err error) bool { return errors.Is(err, bbolterrors.ErrMaxSizeReached) }

// A Step parks and frees pages, in a transaction of the file's writer.
type Step struct {
	*groupcommit.Tx
	parking  *Parking
	unparked bool // see Unpark
}

// Begin returns the Step of a transaction.
func (p *Parking) Begin(tx *groupcommit.Tx) *Step {
	p.db.AllocSize, p.db.MaxSize = allocSize, 0 // undoes the settings of Park
	id := tx.Bolt.ID()
	tx.AfterCommit(func() { p.committed(id) })
	return &Step{Tx: tx, parking: p}
}

// Park parks free pages if the free list is long. It reports whether there may be more pages to
// park. The transaction must have no other steps, because its commit may fail, see [DidNotFit].
func (s *Step) Park(purging bool) (more bool, err error) {
	p := s.parking
	size := min(p.extent, len(extentZeros)/p.pageSize)
	count := min(int(p.listed.Load())-p.keep(purging), parkedAtOnce) / size
	if count <= 0 {
		return false, nil
	}
	if p.skip > 0 {
		p.skip--
		return false, nil
	}
	s.unparked = true
	s.MarkWritten()
	extents, err := s.Bolt.CreateBucketIfNotExists(schema.Spare)
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
	slack := int(p.listed.Load())/pagefile.FreeListPage(p.pageSize) + 8
	p.db.AllocSize, p.db.MaxSize = 0, int(s.Bolt.Size())+slack*p.pageSize
	p.making, p.extent = count*size, size
	return true, nil
}

// Ended chooses the size of the next extents. It must be called after each transaction. If extents
// did not fit, Ended halves the size: there are too few runs of free pages of that length, or
// readers still need the pages.
func (p *Parking) Ended(done bool) {
	switch {
	case p.making == 0:
		return
	case done:
		p.parked.Add(int64(p.making))
		p.extent, p.fails = min(2*p.extent, MaxExtent), 0
	case p.extent > 1:
		p.extent /= 2
	default:
		p.skip = 1 << min(p.fails, MaxSkip)
		p.fails++
	}
	p.making = 0
}

// Unpark deletes extents if the free list is short, or if the last commit grew the file while pages
// were parked. Each transaction must call it before it writes; later calls have no effect.
func (s *Step) Unpark() error {
	if s.unparked {
		return nil
	}
	s.unparked = true
	p := s.parking
	listed, high, want := int(p.listed.Load()), pagefile.FreeListPage(p.pageSize), 0
	if listed < high/2 {
		want = high - listed
	}
	if p.grew && listed < maxListAtGrowth {
		want = max(want, unparkedAtGrowth)
	}
	extents := s.Bolt.Bucket(schema.Spare)
	if want == 0 || extents == nil {
		return nil
	}
	var keys [][]byte // deleted after the loop: a cursor skips keys after a deletion
	freed := 0
	c := extents.Cursor()
	for k, _ := rows.Last(c); k != nil && freed < want; k, _ = c.Prev() {
		keys = append(keys, bytes.Clone(k))
		freed += ExtentPages(k)
	}
	if len(keys) == 0 {
		return nil
	}
	s.MarkWritten() // so that the deletions are committed even if the step only reads
	for _, k := range keys {
		if err := extents.DeleteBucket(k); err != nil {
			return err
		}
	}
	s.AfterCommit(func() { p.parked.Add(-int64(freed)) })
	return nil
}
