package pagefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// A Problem is damage found by [Check].
type Problem struct {
	Bucket string // empty for the whole file or several buckets
	Where  string // "page N"; may be empty
	What   string

	// Fatal means that, because of the damage, bbolt would end the process in a way that cannot be
	// recovered, or overwrite pages in use.
	Fatal bool
}

// A Summary is the result of [Check] for a whole file.
type Summary struct {
	FreeBytes int64
	LastLost  bool            // a meta page is damaged: the last commit may be missing
	Broken    map[string]bool // buckets with a problem; "" for the whole file
}

// Check reads the list of free pages and all pages in use, and calls report with each problem.
// parking is the name of the bucket with parked pages. Only this bucket and the root bucket may
// contain buckets. Buckets in the parking bucket count as free pages.
func Check(file io.ReaderAt, size int64, parking string, report func(Problem)) Summary {
	c := checker{file: file, parking: parking, report: report, summary: Summary{Broken: make(map[string]bool)}}
	c.run(size)
	return c.summary
}

// skim returns an error for fatal damage. It reads the list of free pages, all branches, and one
// leaf of each tree, since all leaves of a tree have the same depth. It also reads the headers of
// the parked pages. If a damaged branch points to a parked page, that page may belong to an old
// tree and point back to the branch.
func skim(file io.ReaderAt, size int64, parking string) (err error) {
	c := checker{file: file, parking: parking, skim: true, summary: Summary{Broken: make(map[string]bool)}, report: func(p Problem) {
		if p.Fatal && err == nil {
			err = Damaged(fmt.Sprintf("%s: %s; boltops.Verify reports more", p.Where, p.What))
		}
	}}
	c.run(size)
	return err
}

type checker struct {
	file    io.ReaderAt
	parking string
	report  func(Problem)
	skim    bool
	summary Summary

	size   int64 // page size
	count  uint64
	used   bitset
	bucket string // bucket being read; "" in the root
	parked bool   // whether the page being read belongs to a bucket in the parking bucket
	leaves int    // for skim: depth of the bucket's leaves; 0 if unknown
}

// A bitset is a set of pages.
type bitset []uint64

func (s bitset) has(n uint64) bool { return s[n/64]&(1<<(n%64)) != 0 }
func (s bitset) set(n uint64)      { s[n/64] |= 1 << (n % 64) }

func where(page uint64) string { return fmt.Sprintf("page %d", page) }

func (c *checker) problem(page uint64, format string, args ...any) {
	c.note(Problem{Where: where(page), What: fmt.Sprintf(format, args...)})
}

func (c *checker) fatal(page uint64, format string, args ...any) {
	c.note(Problem{Where: where(page), What: fmt.Sprintf(format, args...), Fatal: true})
}

func (c *checker) note(p Problem) {
	p.Bucket = c.bucket
	c.summary.Broken[c.bucket] = true
	c.report(p)
}

func (c *checker) run(size int64) {
	m := c.meta()
	if m == nil {
		return
	}
	c.size, c.count = m.pageSize, m.pages
	if c.count < 4 || c.count > uint64(size)/uint64(c.size) {
		c.note(Problem{What: fmt.Sprintf("the file is truncated: it has %d bytes, want %d pages of %d", size, c.count, c.size)})
		return
	}
	c.used = make(bitset, c.count/64+1)
	c.used.set(0)
	c.used.set(1)
	c.tree(m.root, nil, nil, 0)
	c.freelist(m.freelist)
}

// meta returns the meta page of the newest commit, if it is readable.
func (c *checker) meta() *meta {
	first, second := metas(c.file)
	const damaged = "this meta page is damaged; bbolt uses the other one, which may be one commit older"
	c.summary.LastLost = first == nil || second == nil
	switch {
	case first == nil && second == nil:
		c.fatal(0, "both meta pages are damaged")
		return nil
	case first == nil:
		c.problem(0, damaged)
		return second
	case second == nil:
		c.problem(1, damaged)
		return first
	case first.transactionNum > second.transactionNum:
		return first
	}
	return second
}

// read reads a page, and marks its overflow pages as used.
func (c *checker) read(id uint64) (p page, ok bool) {
	header := make([]byte, HeaderSize)
	if _, err := c.file.ReadAt(header, int64(id)*c.size); err != nil {
		c.problem(id, "cannot be read: %v", err)
		return p, false
	}
	if is := binary.NativeEndian.Uint64(header); is != id {
		c.problem(id, "has page number %d in its header", is)
		return p, false
	}
	pages := 1 + uint64(binary.NativeEndian.Uint32(header[12:]))
	if pages > c.count-id || pages > mostPages(parse(header).kind, c.count, c.size) {
		c.problem(id, "claims to span %d pages", pages)
		return p, false
	}
	for n := id + 1; n < id+pages; n++ {
		if !c.use(n) {
			return p, false
		}
	}
	if c.parked {
		c.summary.FreeBytes += int64(pages) * c.size
	}
	data := make([]byte, int64(pages)*c.size)
	if c.skim && c.parked {
		data = header
	}
	if _, err := c.file.ReadAt(data, int64(id)*c.size); err != nil {
		c.problem(id, "cannot be read: %v", err)
		return p, false
	}
	return parse(data), true
}

// use marks a page as used, and reports whether it exists and was unused.
func (c *checker) use(id uint64) bool {
	switch {
	case id < 2 || id >= c.count:
		c.problem(id, "is referenced, but the file has %d pages", c.count)
		return false
	case c.used.has(id):
		c.fatal(id, "is used twice")
		return false
	}
	c.used.set(id)
	return true
}

// tree reads a page of a tree and all pages below it. Keys must be at least low and less than
// high; a nil bound is ignored.
func (c *checker) tree(id uint64, low, high []byte, depth int) {
	if depth > maxDepth {
		c.fatal(id, "is %d levels below its root", depth)
		return
	}
	if !c.use(id) || depth > 0 && depth == c.leaves && c.passesLeaves() {
		return
	}
	p, ok := c.read(id)
	switch {
	case !ok:
	case p.kind == leafPage:
		c.leaves = depth
		c.leaf(id, p, low, high)
	case p.kind == branchPage:
		c.branch(id, p, low, high, depth)
	default:
		c.problem(id, "has unexpected page type %#x", p.kind)
	}
}

// passesLeaves reports whether the leaves of the current tree need not be read.
func (c *checker) passesLeaves() bool {
	return c.skim && c.bucket != "" && (c.bucket != c.parking || c.parked)
}

func (c *checker) branch(id uint64, p page, low, high []byte, depth int) {
	if p.count == 0 || !p.fits() {
		c.problem(id, "has %d branches", p.count)
		return
	}
	var last []byte
	keys := make([][]byte, p.count+1)
	for i := range p.count {
		keys[i], _ = p.branch(i)
		if keys[i] == nil || !ordered(last, keys[i], low, high) {
			c.problem(id, "branch %d has a key out of order", i)
			keys[i] = nil // the pages below get no bound
			continue
		}
		last = keys[i]
	}
	keys[p.count] = high
	for i := range p.count {
		_, child := p.branch(i)
		c.tree(child, keys[i], keys[i+1], depth+1)
	}
}

// leaf reads the rows of a leaf. In the root and in the parking bucket, each row must be a bucket;
// in other buckets, no row may be a bucket.
func (c *checker) leaf(id uint64, p page, low, high []byte) {
	if c.passesLeaves() {
		return
	}
	if !p.fits() {
		c.problem(id, "has %d rows", p.count)
		return
	}
	var last []byte
	for i := range p.count {
		key, value, isBucket := p.row(i)
		switch {
		case key == nil || value == nil:
			c.problem(id, "row %d is outside the page", i)
			continue
		case !ordered(last, key, low, high):
			c.problem(id, "row %d has a key out of order", i)
		case isBucket != (c.bucket == "" || c.bucket == c.parking && !c.parked):
			c.problem(id, "row %d is a bucket where a value belongs, or the reverse", i)
		case isBucket && c.bucket == "":
			c.bucket = string(key)
			c.inBucket(id, value)
			c.bucket = ""
		case isBucket:
			c.parked = true
			c.inBucket(id, value)
			c.parked = false
		}
		last = key
	}
}

// inBucket reads a bucket. A small bucket is inline: its row contains its only page.
func (c *checker) inBucket(id uint64, value []byte) {
	if len(value) < BucketSize {
		c.problem(id, "the bucket's row is truncated")
		return
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		c.leaves = 0
		c.tree(root, nil, nil, 0)
		return
	}
	inline := value[BucketSize:]
	if len(inline) < HeaderSize || parse(inline).kind != leafPage {
		c.problem(id, "the bucket has no page")
		return
	}
	c.leaf(id, parse(inline), nil, nil)
}

// ordered reports whether a key is greater than last, at least low and less than high. A nil bound
// is ignored.
func ordered(last, key, low, high []byte) bool {
	return (last == nil || bytes.Compare(last, key) < 0) &&
		(low == nil || bytes.Compare(low, key) <= 0) && (high == nil || bytes.Compare(key, high) < 0)
}

// freelist reads the list of free pages. It reports pages that are neither used nor free, or both.
func (c *checker) freelist(id uint64) {
	if id == noFreelist {
		// bbolt would scan for free pages in another goroutine, where a panic ends the process.
		if c.skim {
			c.note(Problem{Where: "the file", What: "has no free list: create one with boltops.Compact", Fatal: true})
		}
		return
	}
	whole := len(c.summary.Broken) == 0 // otherwise some used pages are unknown
	if id < 2 || id >= c.count || c.used.has(id) {
		c.fatal(id, "is not a free-list page")
		return
	}
	c.used.set(id)
	p, ok := c.read(id)
	list, isList := []uint64(nil), false
	if ok {
		list, isList = p.freePages()
	}
	if !isList {
		c.fatal(id, "is not a free-list page")
		return
	}
	for _, free := range list {
		if free < 2 || free >= c.count || c.used.has(free) {
			c.fatal(free, "is on the free list, but in use")
			continue
		}
		c.used.set(free)
		c.summary.FreeBytes += c.size
	}
	for n := uint64(2); whole && !c.skim && n < c.count; n++ {
		if !c.used.has(n) {
			c.problem(n, "is neither used nor free")
		}
	}
}
