package bolt

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
)

// Spare pages are free pages that are kept from the file's list of them, which bbolt writes with
// each commit: after a purge of millions of records it would be a megabyte. Most free pages are
// made extents, each a bucket of its own in bucketSpare with one value of zeros, see
// [Store.shorten]. Once the list is about to run out, extents are deleted, the largest first,
// which frees their pages again and writes none of them.
//
// The alternative, bbolt's NoFreelistSync, has no list in the file. Then bbolt has to scan
// the file to make one: in Open after a kill, and while the writer waits after each commit
// that failed, in a goroutine in which damage to the file ends the process.
//
// The file does not grow while there are spare pages, or else each burst would leave it a
// little larger. A commit for which too few pages are free, or too few in one place, fails
// before it writes (bbolt's MaxSize), spare pages are freed, and its steps run again.
//
// A copy of the file that is to be small leaves bucketSpare out.
//
// What is free is read from the file, which only the writer's steps do. In memory is how
// many pages commits take, to decide how many must be free.
type spare struct {
	listReader

	listed, kept atomic.Int64 // pages in the list, as the last step saw it; in extents

	// For steps of the writer only.
	recent  int // pages that a commit took recently
	tries   int // of a commit for which there were not enough pages
	grow    int // commits for which the file may grow although there are spare pages
	growFor int // what grow begins with

	skip, failures atomic.Int64 // attempts to shorten the list that are passed over, and that failed in a row
}

const (
	maxRecent = 1 << 14
	longRun   = 24 // pages in one place: as many as records of events take at most, unless one is very large
	maxTries  = 3

	// Readers may need all that is freed. So the file may grow for some commits, and for more if
	// that was not enough: a reader that stays must not have all spare pages freed.
	minGrowFor = 8
	maxGrowFor = 4096

	allocSize = 16 << 20 // by which the file grows, as bbolt has it by default
)

// load counts the spare pages.
func (r *spare) load(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		if l, ok := r.list(tx.ID()); ok {
			r.listed.Store(int64(l.count))
		}
		kept := 0
		if extents := tx.Bucket(bucketSpare); extents != nil {
			c := extents.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				kept += extentPages(k)
			}
		}
		r.kept.Store(int64(kept))
		return nil
	})
}

// free returns how many bytes of the file are free: those of spare pages, and those listed.
func (r *spare) free() int64 { return (r.listed.Load() + r.kept.Load()) * int64(r.pageSize) }

// The key of an extent is how many pages it has, and a number that no other has.
func extentKeyOf(pages int, number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(pages)), number)
}

// extentPages returns how many pages an extent has, 0 if the key is of none.
func extentPages(key []byte) int {
	if len(key) != 16 {
		return 0
	}
	return int(binary.BigEndian.Uint64(key))
}

// limit keeps the file from growing in this transaction if there are spare pages.
func (r *spare) limit(tx *groupcommit.Tx) {
	db := tx.Bolt.DB()
	db.AllocSize, db.MaxSize = allocSize, 0
	switch {
	case r.grow > 0:
		r.grow--
	case r.tries >= maxTries:
		r.growFor = min(max(2*r.growFor, minGrowFor), maxGrowFor)
		r.tries, r.grow = 0, r.growFor
	case r.kept.Load() > 0:
		db.AllocSize, db.MaxSize = 0, int(tx.Bolt.Size())
	}
}

// refill frees spare pages if too few are free for what commits take. It
// notes how many pages this commit takes.
func (b *batch) refill() error {
	r := &b.store.spare
	if b.refilled {
		return nil
	}
	b.refilled = true
	l, ok := r.list(b.tx.ID() - 1)
	if !ok {
		return nil
	}
	r.listed.Store(int64(l.count))
	id := b.tx.ID()
	b.AfterCommit(func() {
		taken := b.tx.Stats()
		if r.recent = r.recent * 7 / 8; !b.maintaining {
			r.recent = min(max(r.recent, int(taken.GetPageCount())), maxRecent)
		}
		if r.tries > 0 { // what was freed was enough
			r.tries, r.growFor = 0, 0
		}
		if now, ok := r.list(id); ok && b.maintaining {
			r.listed.Store(int64(now.count))
		}
	})
	extents := b.tx.Bucket(bucketSpare)
	if extents == nil {
		return nil
	}
	pages, err := r.pages(l)
	if err != nil {
		return nil
	}
	largest, _ := lastOf(extents.Cursor())
	long := min(r.recent, longRun, extentPages(largest)) // a record is in one place, and may be most of a commit
	usable := 0
	for _, run := range runsOf(pages, pages) {
		if run >= long {
			usable += run
		}
	}
	return b.free(max(r.perPage()/4, r.recent) - usable)
}

// free frees at least so many spare pages, if there are so many. It is called once in a
// transaction, and collects before it deletes: a cursor skips keys after that.
func (b *batch) free(pages int) error {
	extents := b.tx.Bucket(bucketSpare)
	if extents == nil || pages <= 0 {
		return nil
	}
	freed := 0
	var last [][]byte
	c := extents.Cursor()
	for k, _ := lastOf(c); extentPages(k) > 0 && freed < pages; k, _ = c.Prev() {
		last = append(last, bytes.Clone(k))
		freed += extentPages(k)
	}
	if len(last) == 0 {
		return nil
	}
	b.MarkWritten() // or a step that only looks would have nothing committed
	for _, k := range last {
		if err := extents.DeleteBucket(k); err != nil {
			return err
		}
	}
	b.AfterCommit(func() { b.store.spare.kept.Add(-int64(freed)) })
	return nil
}

// makeRoom is a step of its own, after a commit for which too few pages were free: it
// frees some, and more each time.
func (s *Store) makeRoom(b *batch) error {
	r := &s.spare
	b.refilled = true
	r.tries++
	return b.free(max(r.recent, r.perPage()/2) * r.tries)
}
