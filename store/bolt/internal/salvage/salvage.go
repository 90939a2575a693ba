// Package salvage reads what can be read of a bbolt file that may be damaged: a page that
// cannot be read is passed over, and said. It maps no memory, opens no transaction, never
// writes, and ends for any bytes.
//
//	f, err := salvage.Open(path)
//	damaged := f.Scan([]byte("keys"), nil, func(k, value []byte) bool { … })
package salvage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"sort"
)

// ErrUnreadable is returned by [Open] for a file that has no meta page of bbolt's that can be
// read: nothing of it can be.
var ErrUnreadable = errors.New("neither of its meta pages can be read")

// A File is a bbolt file, as of its last commit. It is for one goroutine.
type File struct {
	file     io.ReaderAt
	closer   io.Closer
	pageSize int
	root     uint64
	metas    int               // that can be read
	cache    map[uint64]*page  // for what is looked up
	buckets  map[string][]byte // the headers of those that were found
}

// The layout of bbolt's pages, in the byte order of the machine, which is little-endian on all
// that are supported.
const (
	headerSize  = 16 // id (8), flags (2), count (2), overflow (4)
	elementSize = 16 // of a branch: pos (4), ksize (4), page (8); of a leaf: flags (4), pos (4), ksize (4), vsize (4)
	metaSize    = 64
	magic       = 0xED0CDAED

	branchFlag = 1
	leafFlag   = 2
	bucketLeaf = 1 // flag of a leaf's element

	maxDepth    = 64
	maxOverflow = 1 << 14 // pages of one node: 64 MiB with pages of 4 KiB, far more than any of ours has
	maxCached   = 1024
	maxPageSize = 64 << 10
)

var order = binary.LittleEndian

// Open opens a file that no process writes to.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := New(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	f.closer = file
	return f, nil
}

// New reads a file. The second meta page is where the first one, or else some page size, says.
func New(file io.ReaderAt) (*File, error) {
	f := &File{file: file, cache: make(map[uint64]*page), buckets: make(map[string][]byte)}
	var newest uint64
	found := false
	offsets := []int64{0}
	for size := int64(1 << 10); size <= maxPageSize; size <<= 1 {
		offsets = append(offsets, size)
	}
	for _, at := range offsets {
		if found && at != 0 && at != int64(f.pageSize) {
			continue // where no meta page is
		}
		page := make([]byte, headerSize+metaSize)
		if _, err := file.ReadAt(page, at); err != nil {
			continue
		}
		meta := page[headerSize:]
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:56])
		size := int64(order.Uint32(meta[8:]))
		if order.Uint32(meta) != magic || sum.Sum64() != order.Uint64(meta[56:]) || at != 0 && at != size || size < 1<<10 || size > maxPageSize {
			continue
		}
		f.metas++
		if txid := order.Uint64(meta[48:]); !found || txid > newest {
			found, newest = true, txid
			f.pageSize, f.root = int(size), order.Uint64(meta[16:])
		}
	}
	if !found {
		return nil, ErrUnreadable
	}
	return f, nil
}

// LastLost reports whether one of the two meta pages cannot be read: the last commit may be
// missing then.
func (f *File) LastLost() bool { return f.metas < 2 }

// Close closes the file.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Scan calls visit with the keys of a bucket, from the given one on, in ascending order, and
// their values, until visit returns false. They are in memory of their own. It reports
// whether something could not be read on the way: then there may have been more keys. Of a
// bucket that is not there it reports true.
func (f *File) Scan(bucket, from []byte, visit func(k, value []byte) bool) (damaged bool) {
	header := f.buckets[string(bucket)]
	if header == nil {
		s := scanner{file: f}
		s.at(f.root, bucket, 0, func(k, value []byte, flags uint32) bool {
			if bytes.Equal(k, bucket) && flags&bucketLeaf != 0 && len(value) >= 16 {
				header = value
			}
			return false
		})
		if header == nil {
			return true
		}
		f.buckets[string(bucket)] = header
	}
	s := scanner{file: f}
	each := func(k, value []byte, _ uint32) bool { return visit(k, value) }
	if root := order.Uint64(header); root != 0 {
		s.at(root, from, 0, each)
	} else {
		if p := parse(header[16:]); p != nil && p.leaf { // within the bucket's own element
			s.leaf(p, from, each)
		} else {
			s.damaged = true
		}
	}
	return s.damaged
}

// Buckets returns the names of the buckets, in ascending order, and whether there may be more
// that cannot be read.
func (f *File) Buckets() (names [][]byte, damaged bool) {
	s := scanner{file: f}
	s.at(f.root, nil, 0, func(k, _ []byte, flags uint32) bool {
		if flags&bucketLeaf != 0 {
			names = append(names, k)
		}
		return true
	})
	return names, s.damaged
}

// Get returns the value of a key, and whether it may be that one is there that cannot be read.
func (f *File) Get(bucket, key []byte) (value []byte, damaged bool) {
	damaged = f.Scan(bucket, key, func(k, v []byte) bool {
		if bytes.Equal(k, key) {
			value = v
		}
		return false
	})
	return value, damaged && value == nil
}

// A scanner scans one tree.
type scanner struct {
	file    *File
	last    []byte // the key that was visited last
	any     bool   // one was
	damaged bool
	ended   bool
	seen    map[uint64]bool // pages with branches: none is reached twice
}

type visitor func(k, value []byte, flags uint32) bool

// A page is one with those that it overflows into.
type page struct {
	data    []byte
	leaf    bool
	count   int
	ascends bool // its keys do, so that one may be searched for
}

// parse returns what is in a page, or nil.
func parse(data []byte) *page {
	if len(data) < headerSize {
		return nil
	}
	flags := order.Uint16(data[8:])
	p := &page{data: data, leaf: flags == leafFlag, count: int(order.Uint16(data[10:])), ascends: true}
	if headerSize+p.count*elementSize > len(data) || !p.leaf && flags != branchFlag {
		return nil
	}
	var last []byte
	for i := range p.count {
		key, ok := p.key(i)
		p.ascends = p.ascends && ok && (i == 0 || bytes.Compare(last, key) < 0)
		last = key
	}
	return p
}

// key returns the key of an element.
func (p *page) key(i int) (key []byte, ok bool) {
	at, pos, size := headerSize+i*elementSize, 0, 4
	if p.leaf {
		pos, size = 4, 8
	}
	start := uint64(at) + uint64(order.Uint32(p.data[at+pos:]))
	end := start + uint64(order.Uint32(p.data[at+size:]))
	if end > uint64(len(p.data)) {
		return nil, false
	}
	return p.data[start:end], true
}

// first returns the first element with a key that is not before from, as far as the page
// can be searched.
func (p *page) first(from []byte) int {
	if !p.ascends {
		return 0
	}
	return sort.Search(p.count, func(i int) bool {
		key, _ := p.key(i)
		return bytes.Compare(key, from) >= 0
	})
}

// at scans the page of that number, and those below it.
func (s *scanner) at(id uint64, from []byte, depth int, visit visitor) {
	p := s.file.read(id)
	switch {
	case p == nil || depth >= maxDepth || s.seen[id]:
		s.damaged = true
	case p.leaf:
		s.leaf(p, from, visit)
	default:
		if s.seen == nil {
			s.seen = make(map[uint64]bool)
		}
		s.seen[id] = true
		s.branch(p, from, depth, visit)
	}
}

func (s *scanner) branch(p *page, from []byte, depth int, visit visitor) {
	s.damaged = s.damaged || !p.ascends
	i := p.first(from)
	if key, ok := p.key(min(i, p.count-1)); i > 0 && (i == p.count || !ok || !bytes.Equal(key, from)) {
		i-- // it may be in the page before
	}
	for ; i < p.count && !s.ended; i++ {
		if key, ok := p.key(i); !ok || s.any && bytes.Compare(key, s.last) <= 0 {
			s.damaged = true // pages that lead to each other, or in circles, do not ascend
			continue
		}
		s.at(order.Uint64(p.data[headerSize+i*elementSize+8:]), from, depth+1, visit)
	}
}

func (s *scanner) leaf(p *page, from []byte, visit visitor) {
	s.damaged = s.damaged || !p.ascends
	for i := p.first(from); i < p.count && !s.ended; i++ {
		at := headerSize + i*elementSize
		key, ok := p.key(i)
		start := uint64(at) + uint64(order.Uint32(p.data[at+4:])) + uint64(order.Uint32(p.data[at+8:]))
		end := start + uint64(order.Uint32(p.data[at+12:]))
		if !ok || end > uint64(len(p.data)) || s.any && bytes.Compare(key, s.last) <= 0 {
			s.damaged = true
			continue
		}
		if bytes.Compare(key, from) < 0 {
			continue
		}
		s.last, s.any = bytes.Clone(key), true
		s.ended = !visit(bytes.Clone(key), bytes.Clone(p.data[start:end]), order.Uint32(p.data[at:]))
	}
}

// read returns a page, or nil.
func (f *File) read(id uint64) *page {
	if p := f.cache[id]; p != nil {
		return p
	}
	if id < 2 || id > 1<<48 {
		return nil
	}
	data, offset := make([]byte, f.pageSize), int64(id)*int64(f.pageSize)
	if _, err := f.file.ReadAt(data, offset); err != nil || order.Uint64(data) != id {
		return nil
	}
	if overflow := order.Uint32(data[12:]); overflow > 0 {
		if overflow > maxOverflow || f.missing(offset+int64(overflow+1)*int64(f.pageSize)) {
			return nil
		}
		data = make([]byte, int(overflow+1)*f.pageSize)
		if _, err := f.file.ReadAt(data, offset); err != nil {
			return nil
		}
	}
	p := parse(data)
	if p != nil && len(data) == f.pageSize {
		if len(f.cache) == maxCached {
			clear(f.cache)
		}
		f.cache[id] = p
	}
	return p
}

// missing reports whether the file is shorter than that.
func (f *File) missing(size int64) bool {
	n, _ := f.file.ReadAt(make([]byte, 1), size-1)
	return n == 0
}
