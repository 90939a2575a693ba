package bolt

import (
	"encoding/binary"
	"os"
)

// Where pages have what, see [pages].
const (
	pageFlags = 8
	pageCount = 10
	manyPages = 0xffff // as count: the first 8 bytes after the header are the count

	metaFreeList = pageHeader + 32
	metaEnd      = pageHeader + 40
	metaID       = pageHeader + 48
	metaHeader   = pageHeader + 64
)

// A listReader reads bbolt's list of free pages from the file, since bbolt tells only how long it
// is, and that only where it keeps statistics of each lookup.
type listReader struct {
	file     *os.File
	pageSize int
}

// A freeList is where the file lists its free pages, as a commit left it.
type freeList struct {
	at    int64  // in the file
	count int    // of the pages, those included that readers still need
	end   uint64 // of the file, in pages: all further ones are unused
}

// perPage returns how many pages a page of the list has room for.
func (r *listReader) perPage() int { return (r.pageSize - pageHeader) / 8 }

// list returns the list that the commit of that number wrote, one of the last two. It is
// to be called where nobody else writes.
func (r *listReader) list(commit int) (l freeList, ok bool) {
	if r.file == nil || commit < 0 {
		return l, false
	}
	var meta [metaHeader]byte
	if _, err := r.file.ReadAt(meta[:], int64(commit%2)*int64(r.pageSize)); err != nil {
		return l, false
	}
	order := binary.NativeEndian // as bbolt writes it
	if order.Uint32(meta[pageHeader:]) != metaMagic || order.Uint64(meta[metaID:]) != uint64(commit) {
		return l, false
	}
	l.end = order.Uint64(meta[metaEnd:])
	page := order.Uint64(meta[metaFreeList:])
	if page >= l.end {
		return l, false
	}
	var head [pageHeader + 8]byte
	l.at = int64(page) * int64(r.pageSize)
	if _, err := r.file.ReadAt(head[:], l.at); err != nil || order.Uint16(head[pageFlags:]) != freelistPage {
		return l, false
	}
	l.count = int(order.Uint16(head[pageCount:]))
	l.at += pageHeader
	if l.count == manyPages {
		l.count = int(order.Uint64(head[pageHeader:]))
		l.at += 8
	}
	return l, l.count >= 0 && uint64(l.count) < l.end
}

// pages returns what is listed, in ascending order.
func (r *listReader) pages(l freeList) ([]uint64, error) {
	raw := make([]byte, 8*l.count)
	if _, err := r.file.ReadAt(raw, l.at); err != nil {
		return nil, err
	}
	pages := make([]uint64, l.count)
	for i := range pages {
		pages[i] = binary.NativeEndian.Uint64(raw[8*i:])
	}
	return pages, nil
}

// runsOf returns the lengths of the runs of consecutive pages among those that are in both
// ascending lists.
func runsOf(pages, old []uint64) (runs []int) {
	next := uint64(0)
	for _, page := range pages {
		for len(old) > 0 && old[0] < page {
			old = old[1:]
		}
		switch {
		case len(old) == 0 || old[0] != page:
		case len(runs) > 0 && page == next:
			runs[len(runs)-1]++
			next = page + 1
		default:
			runs = append(runs, 1)
			next = page + 1
		}
	}
	return runs
}
