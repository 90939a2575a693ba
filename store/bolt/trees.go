package bolt

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A treeCheck finds pages that two others lead to, or that are free as well. bbolt goes round in a tree in which a page leads to
// one above it, until the goroutine's stack ends the process, which nothing recovers from; and it writes over pages that are used twice.
// All else that is wrong with a page is an error of the read or the step that meets it.
//
// It reads the branches, and one leaf of each tree: all leaves of a tree are as deep.
type treeCheck struct {
	file     io.ReaderAt
	pageSize int64
	count    uint64 // of pages
	used     bitset
	leaves   int // how deep the leaves of the tree are; 0: not known
}

// checkTrees refuses a file in which pages are used twice, or whose list of free pages bbolt cannot read.
func checkTrees(file io.ReaderAt, bytes int64) error {
	var report Report
	p := pages{file: file, report: &report, broken: make(map[string]bool)}
	meta := p.meta()
	if meta == nil {
		return errDamaged(report.Problems[0])
	}
	c := treeCheck{file: file, pageSize: int64(binary.NativeEndian.Uint32(meta[8:])), count: binary.NativeEndian.Uint64(meta[40:])}
	if c.count < 4 || c.count > uint64(bytes)/uint64(c.pageSize) {
		return nil // it is truncated, which checkFile says
	}
	c.used = make(bitset, c.count/64+1)
	err := c.tree(binary.NativeEndian.Uint64(meta[16:]), 0, func(e []byte) error {
		key := part(e, binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]))
		value := part(e, binary.NativeEndian.Uint32(e[4:])+uint32(len(key)), binary.NativeEndian.Uint32(e[12:]))
		if binary.NativeEndian.Uint32(e)&bucketElement == 0 || len(value) < bucketHead || binary.NativeEndian.Uint64(value) == 0 {
			return nil
		}
		c.leaves = 0
		return c.tree(binary.NativeEndian.Uint64(value), 0, nil)
	})
	if err != nil {
		return err
	}
	return c.freelist(binary.NativeEndian.Uint64(meta[32:]))
}

// tree looks at a page that is as many pages below its root, and at those below it. Each row of all leaves is passed
// to row, unless that is nil.
func (c *treeCheck) tree(id uint64, depth int, row func(element []byte) error) error {
	if id < 2 || id >= c.count {
		return nil
	}
	if c.used.has(id) || depth > aheadHeight {
		return errDamaged(fmt.Sprintf("page %d is used twice; bolt.Verify says more", id))
	}
	c.used.set(id)
	if row == nil && depth > 0 && depth == c.leaves {
		return nil
	}
	page, flags := c.read(id)
	switch {
	case flags == leafPage && row == nil:
		c.leaves = depth
		return nil
	case flags != branchPage && flags != leafPage:
		return nil
	}
	for at := pageHeader; at < min(pageHeader+element*int(binary.NativeEndian.Uint16(page[10:])), len(page)-element+1); at += element {
		var err error
		if flags == branchPage {
			err = c.tree(binary.NativeEndian.Uint64(page[at+8:]), depth+1, row)
		} else {
			err = row(page[at:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read returns a page with all of its bytes, and of which kind it is; 0 if it cannot be read.
func (c *treeCheck) read(id uint64) (page []byte, flags uint16) {
	page = make([]byte, c.pageSize)
	if _, err := c.file.ReadAt(page, int64(id)*c.pageSize); err != nil || binary.NativeEndian.Uint64(page) != id {
		return nil, 0
	}
	flags = binary.NativeEndian.Uint16(page[8:])
	pages := 1 + uint64(binary.NativeEndian.Uint32(page[12:]))
	switch {
	case pages == 1:
		return page, flags
	case pages > c.count-id || pages > mostPages(flags, c.count, c.pageSize):
		return nil, 0
	}
	page = make([]byte, int64(pages)*c.pageSize)
	if _, err := c.file.ReadAt(page, int64(id)*c.pageSize); err != nil {
		return nil, 0
	}
	return page, flags
}

func (c *treeCheck) freelist(id uint64) error {
	if id == noFreelist { // bbolt would look for the free pages in a goroutine of its own, and end the process if one is damaged
		return errDamaged("it has no list of free pages: make one with bolt.Compact")
	}
	damaged := errDamaged(fmt.Sprintf("page %d is no list of free pages", id))
	if id < 2 || id >= c.count || c.used.has(id) {
		return damaged
	}
	page, flags := c.read(id)
	if flags != freelistPage {
		return damaged
	}
	count, list := uint64(binary.NativeEndian.Uint16(page[10:])), page[pageHeader:]
	if count == math.MaxUint16 {
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if count > uint64(len(list)/8) {
		return damaged
	}
	for ; count > 0; count, list = count-1, list[8:] {
		free := binary.NativeEndian.Uint64(list)
		if free < 2 || free >= c.count || free == id || c.used.has(free) {
			return errDamaged(fmt.Sprintf("page %d is on the list of free pages, and is none; bolt.Verify says more", free))
		}
		c.used.set(free)
	}
	return nil
}
