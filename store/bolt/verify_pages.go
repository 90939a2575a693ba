package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// What bbolt's pages are like. Numbers are in the processor's order of bytes.
const (
	pageHeader = 16 // id, flags (2 bytes), count (2), overflow: how many pages more it has (4)
	element    = 16 // of a branch: position, size of the key (4 each), page; of a leaf: flags, position, sizes (4 each)
	bucketHead = 16 // root, sequence

	branchPage, leafPage, freelistPage = 0x01, 0x02, 0x10
	bucketElement                      = 0x01

	metaMagic, metaVersion = 0xED0CDAED, 2
	metaBytes              = 64 // magic, version, size of pages, flags (4 each), root, sequence, freelist, pages, transaction, checksum
	noFreelist             = math.MaxUint64

	maxPage = 64 << 20 // of a tree, with its overflow: the largest of ours is far smaller
)

// pages checks the pages of a bbolt file by reading it, so that damage is no more than
// bytes that do not fit: bbolt panics, or follows them.
type pages struct {
	file   io.ReaderAt
	report *Report
	size   int64 // of a page
	count  uint64
	bucket string // that is being read
	extent bool   // of bucketSpare, which has buckets of values
	used   bitset
	broken map[string]bool // buckets with a problem; "" is what all have in common
}

// A bitset has a bit for each page.
type bitset []uint64

func (s bitset) has(n uint64) bool { return s[n/64]&(1<<(n%64)) != 0 }
func (s bitset) set(n uint64)      { s[n/64] |= 1 << (n % 64) }

// checkPages reads all pages that are in use, and the list of those that are not.
func checkPages(file io.ReaderAt, bytes int64, report *Report) *pages {
	p := &pages{file: file, report: report, broken: make(map[string]bool)}
	meta := p.meta()
	if meta == nil {
		return p
	}
	p.size, p.count = int64(binary.NativeEndian.Uint32(meta[8:])), binary.NativeEndian.Uint64(meta[40:])
	if p.count < 4 || p.count > uint64(bytes)/uint64(p.size) {
		p.problem("", "the file is truncated: it has %d bytes and should have %d pages of %d", bytes, p.count, p.size)
		return p
	}
	p.used = make(bitset, p.count/64+1)
	p.used.set(0)
	p.used.set(1)
	p.tree(binary.NativeEndian.Uint64(meta[16:]), nil, nil)
	p.bucket = ""
	p.freelist(binary.NativeEndian.Uint64(meta[32:]))
	return p
}

// problem notes what is wrong.
func (p *pages) problem(where, format string, args ...any) {
	p.broken[p.bucket] = true
	p.report.add(p.bucket, where, format, args...)
}

// meta returns the newer of the two meta pages, without their headers.
func (p *pages) meta() (newest []byte) {
	first := p.metaAt(0)
	size := int64(0)
	if first != nil {
		size = int64(binary.NativeEndian.Uint32(first[8:]))
		newest = p.metaAt(size)
	} else {
		for size = 1 << 10; size <= 64<<10 && newest == nil; size <<= 1 {
			newest = p.metaAt(size)
		}
	}
	switch {
	case first == nil && newest == nil:
		p.problem("page 0", "neither of the meta pages is whole")
	case first == nil:
		p.problem("page 0", "this meta page is damaged; bbolt goes by the other one, which may be of the commit before the last")
	case newest == nil:
		p.problem("page 1", "this meta page is damaged; bbolt goes by the other one, which may be of the commit before the last")
		newest = first
	case binary.NativeEndian.Uint64(first[48:]) > binary.NativeEndian.Uint64(newest[48:]):
		newest = first
	}
	return newest
}

// metaAt returns the meta of the page there, if it is one.
func (p *pages) metaAt(at int64) []byte {
	page := make([]byte, pageHeader+metaBytes)
	if _, err := p.file.ReadAt(page, at); err != nil {
		return nil
	}
	meta := page[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:56])
	size := binary.NativeEndian.Uint32(meta[8:])
	if binary.NativeEndian.Uint32(meta) != metaMagic || binary.NativeEndian.Uint32(meta[4:]) != metaVersion ||
		binary.NativeEndian.Uint64(meta[56:]) != sum.Sum64() || size < 1<<10 || size > 64<<10 || size&(size-1) != 0 {
		return nil
	}
	return meta
}

// read reads a page, which nothing else may use, and returns it whole.
func (p *pages) read(id uint64) (page []byte, flags uint16, count int) {
	where := fmt.Sprintf("page %d", id)
	header := make([]byte, pageHeader)
	if id < 2 || id >= p.count {
		p.problem(where, "it is referred to, and there are %d pages", p.count)
		return nil, 0, 0
	}
	if _, err := p.file.ReadAt(header, int64(id)*p.size); err != nil {
		p.problem(where, "it cannot be read: %v", err)
		return nil, 0, 0
	}
	pages := 1 + uint64(binary.NativeEndian.Uint32(header[12:]))
	switch {
	case binary.NativeEndian.Uint64(header) != id:
		p.problem(where, "it says that it is page %d", binary.NativeEndian.Uint64(header))
		return nil, 0, 0
	case pages > p.count-id || pages > mostPages(binary.NativeEndian.Uint16(header[8:]), p.count, p.size):
		p.problem(where, "it says that it goes on for %d pages", pages)
		return nil, 0, 0
	}
	for n := id; n < id+pages; n++ {
		if p.used.has(n) {
			p.problem(where, "page %d is used twice", n)
			return nil, 0, 0
		}
		p.used.set(n)
	}
	page = make([]byte, int64(pages)*p.size)
	if _, err := p.file.ReadAt(page, int64(id)*p.size); err != nil {
		p.problem(where, "it cannot be read: %v", err)
		return nil, 0, 0
	}
	return page, binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
}

// tree reads a page of a tree and all below it. Its keys are from low on and before high,
// unless these are nil. Within p.bucket, or of the tree of buckets if that is empty.
func (p *pages) tree(id uint64, low, high []byte) {
	page, flags, count := p.read(id)
	if page == nil {
		return
	}
	where := fmt.Sprintf("page %d", id)
	switch flags {
	case leafPage:
		p.leaf(where, page, count, low, high)
	case branchPage:
		p.branch(where, page, count, low, high)
	default:
		p.problem(where, "it is of a kind that does not belong here: %#x", flags)
	}
}

// mostPages returns how many pages a page of that kind may go on for, in a file of that many pages: a list of free pages has
// 8 bytes for each of them at most.
func mostPages(flags uint16, count uint64, size int64) uint64 {
	if flags == freelistPage {
		return 1 + (pageHeader+8+8*count)/uint64(size)
	}
	return maxPage / uint64(size)
}

func (p *pages) branch(where string, page []byte, count int, low, high []byte) {
	if count == 0 || pageHeader+count*element > len(page) {
		p.problem(where, "it has %d branches", count)
		return
	}
	keys := make([][]byte, count+1)
	for i := range count {
		e := page[pageHeader+i*element:]
		keys[i] = part(e, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]))
		if keys[i] == nil || !ordered(i, keys[i], keys[max(i-1, 0)], low, high) {
			p.problem(where, "branch %d has no key in its place", i)
			return
		}
	}
	keys[count] = high
	for i := range count {
		p.tree(binary.NativeEndian.Uint64(page[pageHeader+i*element+8:]), keys[i], keys[i+1])
	}
}

// leaf reads the rows of a leaf. Those of the tree of buckets are buckets, and so are those of
// bucketSpare.
func (p *pages) leaf(where string, page []byte, count int, low, high []byte) {
	if pageHeader+count*element > len(page) {
		p.problem(where, "it has %d rows", count)
		return
	}
	var last []byte
	for i := range count {
		e := page[pageHeader+i*element:]
		at, size := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:])
		key := part(e, at, size)
		value := part(e, at+size, binary.NativeEndian.Uint32(e[12:]))
		switch {
		case key == nil || value == nil || at+size < at:
			p.problem(where, "row %d is not within the page", i)
			return
		case !ordered(i, key, last, low, high):
			p.problem(where, "row %d has a key that is not in its place", i)
			return
		}
		last = key
		switch isBucket := binary.NativeEndian.Uint32(e)&bucketElement != 0; {
		case isBucket && p.bucket == "":
			p.bucket = string(key)
			p.inBucket(where, value)
			p.bucket = ""
		case isBucket && p.bucket == string(bucketSpare) && !p.extent:
			p.extent = true
			p.inBucket(where, value)
			p.extent = false
			p.report.FreeBytes += int64(extentPages(key)) * p.size
		case isBucket || p.bucket == "" || p.bucket == string(bucketSpare) && !p.extent:
			p.problem(where, "row %d is a bucket where none is, or none where one is", i)
		}
	}
}

// inBucket reads a bucket, whose only page may be within its row.
func (p *pages) inBucket(where string, value []byte) {
	if len(value) < bucketHead {
		p.problem(where, "the row of the bucket is cut short")
		return
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		p.tree(root, nil, nil)
		return
	}
	page := value[bucketHead:]
	if len(page) < pageHeader || binary.NativeEndian.Uint16(page[8:]) != leafPage {
		p.problem(where, "the bucket has no page")
		return
	}
	p.leaf(where, page, int(binary.NativeEndian.Uint16(page[10:])), nil, nil)
}

// ordered reports whether a key is in its place: after the one before, and within its bounds.
func ordered(i int, key, before, low, high []byte) bool {
	return (i == 0 || bytes.Compare(before, key) < 0) &&
		(low == nil || bytes.Compare(low, key) <= 0) && (high == nil || bytes.Compare(key, high) < 0)
}

// part returns what stands there, as seen from the element, or nil if that is not in the page.
func part(element []byte, at, size uint32) []byte {
	end := uint64(at) + uint64(size)
	if end > uint64(len(element)) {
		return nil
	}
	return element[at:end:end]
}

// freelist reads the list of pages that are free: each page is used, or is on it.
func (p *pages) freelist(id uint64) {
	if id == noFreelist {
		return
	}
	page, flags, count := p.read(id)
	if page == nil {
		return
	}
	where := fmt.Sprintf("page %d", id)
	list := page[pageHeader:]
	if count == math.MaxUint16 {
		n := binary.NativeEndian.Uint64(list)
		if list = list[8:]; n > uint64(len(list)/8) {
			p.problem(where, "the list of free pages is cut short")
			return
		}
		count = int(n)
	}
	if flags != freelistPage || count > len(list)/8 {
		p.problem(where, "it is no list of free pages")
		return
	}
	whole := len(p.broken) == 0 // or else what is used is not known
	for i := range count {
		free := binary.NativeEndian.Uint64(list[8*i:])
		switch {
		case free < 2 || free >= p.count:
			p.problem(where, "it has page %d as free, and there are %d pages", free, p.count)
		case p.used.has(free):
			p.problem(where, "page %d is free, and used; or free twice", free)
		default:
			p.used.set(free)
			p.report.FreeBytes += p.size
		}
	}
	for n := uint64(2); whole && n < p.count; n++ {
		if !p.used.has(n) {
			p.problem(fmt.Sprintf("page %d", n), "it is neither used nor free")
		}
	}
}
