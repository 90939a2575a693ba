package bolt

import (
	"encoding/binary"
	"io"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

const (
	aheadReaders = 16      // a disk answers as many in about the time of one
	aheadMost    = 1 << 20 // bytes of a value, or of a page with its overflow: ours have less
	aheadHeight  = 16      // of a tree: one that is higher is damaged
)

// A readAhead reads what Open is about to look at in the file, many pages at a time, so that the
// system has them in memory by then. bbolt tells the system that the file it has mapped into
// memory is used at random. So each page that is not in memory is a read of its own, and Open
// alone would wait for one after the other: 300,000 for a file of 10 GB.
//
// It reads with ReadAt, and stops at what is damaged: Open meets that itself. Reading mapped memory
// would fault where the file is damaged, and while it waits keep one of Go's processors, of
// which there may be two.
type readAhead struct {
	file     io.ReaderAt
	pageSize int64
	end      uint64 // of the file, in pages
	events   uint64 // root of bucketEvents
	leaves   chan uint64
	stopped  atomic.Bool
	all      sync.WaitGroup
}

// A wanted reports whether something of a page of a tree is wanted. The keys of 8 bytes in it are
// numbers from low on and before high. It is asked in ascending order, a branch before its pages.
type wanted func(low, high uint64, leaf bool) bool

func (s *Store) newReadAhead(tx *bbolt.Tx) *readAhead {
	pageSize := int64(tx.DB().Info().PageSize)
	return &readAhead{
		file: s.file, pageSize: pageSize, end: uint64(tx.Size() / pageSize),
		events: uint64(tx.Bucket(bucketEvents).Root()), leaves: make(chan uint64, 4*aheadReaders),
	}
}

// segmentsFrom begins to read the segments from a number on. stop returns once nothing is read any
// more; until then nobody may write.
func (r *readAhead) segmentsFrom(number uint64) (stop func()) {
	return r.begin(func() {
		r.segments(func(_, high uint64, _ bool) bool { return high > number })
	})
}

// begin has the leaves read that walk finds.
func (r *readAhead) begin(walk func()) (stop func()) {
	r.all.Go(func() {
		defer close(r.leaves)
		walk()
	})
	for range aheadReaders {
		r.all.Go(r.read)
	}
	return func() {
		r.stopped.Store(true)
		r.all.Wait()
	}
}

// segments passes on the leaves of bucketEvents that are wanted.
func (r *readAhead) segments(want wanted) {
	r.tree(r.events, want, func(leaf uint64) bool {
		r.leaves <- leaf
		return true
	})
}

// read reads the segments in leaves: the records under keys of 8 bytes, without the bodies next to them.
func (r *readAhead) read() {
	page := make([]byte, r.pageSize)
	for leaf := range r.leaves {
		if r.stopped.Load() {
			continue
		}
		at := int64(leaf) * r.pageSize
		for e := range r.elements(page, leaf, leafPage) {
			position, key, value := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
			start := int64(len(page)-len(e)) + int64(position)
			end := start + int64(key) + min(int64(value), aheadMost)
			if start = max(start, r.pageSize); key == 8 && start < end {
				_, _ = io.Copy(io.Discard, io.NewSectionReader(r.file, at+start, end-start))
			}
		}
	}
}

// tree visits the wanted leaves of a tree in order, until visit returns false.
func (r *readAhead) tree(root uint64, want wanted, visit func(leaf uint64) bool) {
	height := 0 // all leaves are as deep
	page := make([]byte, r.pageSize)
	for id, is := root, true; is && height <= aheadHeight; {
		is = false
		for e := range r.elements(page, id, branchPage) {
			id, is = binary.NativeEndian.Uint64(e[8:]), true
			height++
			break
		}
	}
	if height <= aheadHeight {
		r.below(root, height, 0, math.MaxUint64, want, visit)
	}
}

// below visits the wanted leaves below a page. Numbers are within those of the page also where it is damaged.
func (r *readAhead) below(id uint64, height int, low, high uint64, want wanted, visit func(leaf uint64) bool) bool {
	if r.stopped.Load() {
		return false
	}
	if height == 0 {
		return visit(id)
	}
	var ids, from []uint64
	for e := range r.elements(make([]byte, r.pageSize), id, branchPage) {
		key := part(e, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]))
		if len(key) < 8 {
			key = make([]byte, 8)
		}
		n := binary.BigEndian.Uint64(key)
		if len(key) > 8 { // of bodies: its segment is before
			n++
		}
		ids, from = append(ids, binary.NativeEndian.Uint64(e[8:])), append(from, n)
	}
	from = append(from, high)
	if len(ids) > 0 {
		from[0] = low
	}
	for i, id := range ids {
		low, high := max(low, from[i]), min(high, from[i+1])
		if low < high && want(low, high, height == 1) && !r.below(id, height-1, low, high, want, visit) {
			return false
		}
	}
	return true
}

// elements reads a page into memory, without its overflow, and returns what it has after the start of
// each of its elements; none if it is not of that kind.
func (r *readAhead) elements(page []byte, id uint64, kind uint16) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if id < 2 || id >= r.end {
			return
		}
		if _, err := r.file.ReadAt(page, int64(id)*r.pageSize); err != nil || binary.NativeEndian.Uint16(page[pageFlags:]) != kind {
			return
		}
		for i := range int(binary.NativeEndian.Uint16(page[pageCount:])) {
			if at := pageHeader + i*element; at+element > len(page) || !yield(page[at:]) {
				return
			}
		}
	}
}
