package pagefile

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
)

// The layout of bbolt's pages. Numbers have the byte order of the processor.
const (
	// Page header: ID (8), kind (2), number of elements (2), number of overflow pages (4).
	HeaderSize = 16
	// Branch element: position (4), key size (4), page ID (8). Leaf element: flags, position, key
	// size, value size (4 each).
	ElementSize = 16
	BucketSize  = 16 // bucket header, the value of the row: root page (8), sequence (8)

	branchPage, leafPage, freelistPage = 0x01, 0x02, 0x10
	bucketFlag                         = 0x01 // leaf element: the row is a bucket

	metaMagic, metaVersion = 0xED0CDAED, 2
	// Magic, version, page size, flags (4 each), root, sequence, freelist, page count, transaction,
	// checksum.
	metaSize   = 64
	noFreelist = math.MaxUint64

	minPageSize, maxPageSize = 1 << 10, 64 << 10

	maxDepth = 16 // maximum depth of a tree; trees of this library have up to 5 levels
	// Maximum size in bytes of a tree page with its overflow pages; pages of this library are far
	// smaller.
	maxTreePage = 64 << 20
)

// A meta holds the fields of a meta page.
type meta struct {
	pageSize                              int64
	root, freelist, pages, transactionNum uint64
}

// metaAt returns the meta page at an offset, or nil.
func metaAt(file io.ReaderAt, at int64) *meta {
	page := make([]byte, HeaderSize+metaSize)
	if _, err := file.ReadAt(page, at); err != nil {
		return nil
	}
	b := page[HeaderSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56])
	size := binary.NativeEndian.Uint32(b[8:])
	if binary.NativeEndian.Uint32(b) != metaMagic || binary.NativeEndian.Uint32(b[4:]) != metaVersion ||
		binary.NativeEndian.Uint64(b[56:]) != sum.Sum64() || size < minPageSize || size > maxPageSize || size&(size-1) != 0 {
		return nil
	}
	return &meta{
		pageSize: int64(size), root: binary.NativeEndian.Uint64(b[16:]), freelist: binary.NativeEndian.Uint64(b[32:]),
		pages: binary.NativeEndian.Uint64(b[40:]), transactionNum: binary.NativeEndian.Uint64(b[48:]),
	}
}

// metas returns both meta pages. A damaged meta page is nil.
func metas(file io.ReaderAt) (first, second *meta) {
	if first = metaAt(file, 0); first != nil {
		return first, metaAt(file, first.pageSize)
	}
	for size := int64(minPageSize); size <= maxPageSize && second == nil; size <<= 1 {
		second = metaAt(file, size)
	}
	return nil, second
}

// A page holds the contents of a page and its overflow pages.
type page struct {
	data  []byte
	kind  uint16
	count int // number of elements
}

func parse(data []byte) page {
	return page{data, binary.NativeEndian.Uint16(data[8:]), int(binary.NativeEndian.Uint16(data[10:]))}
}

// fits reports whether the page is large enough for its elements.
func (p page) fits() bool { return HeaderSize+p.count*ElementSize <= len(p.data) }

// element returns the bytes of the page from element i to the end. Positions in an element are
// relative to its beginning.
func (p page) element(i int) []byte { return p.data[HeaderSize+i*ElementSize:] }

// branch returns the key and the child page of an element. The key is nil if it lies outside the
// page.
func (p page) branch(i int) (key []byte, child uint64) {
	e := p.element(i)
	return part(e, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])), binary.NativeEndian.Uint64(e[8:])
}

// row returns a row of a leaf. The key or value is nil if it lies outside the page.
func (p page) row(i int) (key, value []byte, isBucket bool) {
	e := p.element(i)
	at, size := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:])
	if at+size < at {
		return nil, nil, false
	}
	return part(e, at, size), part(e, at+size, binary.NativeEndian.Uint32(e[12:])), binary.NativeEndian.Uint32(e)&bucketFlag != 0
}

// part returns the size bytes of b at a position, or nil if they lie outside b.
func part(b []byte, at, size uint32) []byte {
	end := uint64(at) + uint64(size)
	if end > uint64(len(b)) {
		return nil
	}
	return b[at:end:end]
}

// mostPages returns the maximum number of pages that a page of this kind and its overflow pages may
// take in a file of count pages. A list of free pages takes at most 8 bytes for each page of the
// file.
func mostPages(kind uint16, count uint64, pageSize int64) uint64 {
	if kind == freelistPage {
		return 1 + (HeaderSize+8+8*count)/uint64(pageSize)
	}
	return maxTreePage / uint64(pageSize)
}

// freePages returns the page IDs in a list of free pages. ok is false if the list is damaged.
func (p page) freePages() (list []uint64, ok bool) {
	if p.kind != freelistPage {
		return nil, false
	}
	raw, count := p.data[HeaderSize:], uint64(p.count)
	if count == math.MaxUint16 { // the first 8 bytes hold the count
		count, raw = binary.NativeEndian.Uint64(raw), raw[8:]
	}
	if count > uint64(len(raw)/8) {
		return nil, false
	}
	list = make([]uint64, count)
	for i := range list {
		list[i] = binary.NativeEndian.Uint64(raw[8*i:])
	}
	return list, true
}

// A FreeList describes the list of free pages. Pages is the number of listed pages, including pages
// that readers still need.
type FreeList struct {
	Pages int
	End   uint64 // length of the file in pages; pages from here on were never used
}

// ReadFreeList reads the length of the free list written by transaction tx, which must be one of
// the last two. It reads the file, because bbolt reports the length only if statistics are on, and
// these also count each lookup. Only the writer may call it.
func ReadFreeList(file io.ReaderAt, pageSize, tx int) (l FreeList, ok bool) {
	m := metaAt(file, int64(tx%2)*int64(pageSize))
	if m == nil || m.transactionNum != uint64(tx) {
		return l, false
	}
	head := make([]byte, HeaderSize+8)
	if _, err := file.ReadAt(head, int64(m.freelist)*int64(pageSize)); err != nil {
		return l, false
	}
	p := parse(head)
	count := uint64(p.count)
	if p.count == math.MaxUint16 {
		count = binary.NativeEndian.Uint64(head[HeaderSize:])
	}
	return FreeList{int(count), m.pages}, p.kind == freelistPage && count < m.pages
}

// FreeListPage returns the number of free pages that one page of the list can hold.
func FreeListPage(pageSize int) int { return (pageSize - HeaderSize) / 8 }
