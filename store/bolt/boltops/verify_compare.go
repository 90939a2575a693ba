package boltops

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
)

// A comparison compares the rows of an index bucket with the rows that other buckets require it to
// have. It needs neither lookups nor memory for the rows: it adds a hash of each required row to a
// cell, and subtracts a hash of each row that exists. Afterwards, each cell that is not zero
// contains a difference. Only then, [verifier.nameDifferences] reads the file a second time and
// keeps the rows of these cells.
//
// A row may consist of entries, which are compared on their own, for example the numbers in a row
// of schema.Runs. All entries of a row belong to the same cell.
type comparison struct {
	cells [1 << 14]uint64
	// rows holds the unbalanced entries of differing cells, during the second reading: by the key
	// of the row, then by entry.
	rows map[string]map[string]*unbalanced
	kept map[uint64]bool // the cells whose rows the second reading keeps
}

// An unbalanced is an entry that is not as often required as it exists.
type unbalanced struct {
	excess int    // how often it is required, less how often it exists
	by     string // the first row that requires it
}

// hashSeed is the same for both readings of a file.
var hashSeed = maphash.MakeSeed()

// want notes that the current row requires an index row with this key, and an entry in it.
func (v *verifier) want(bucket, key, entry []byte) { v.compare(string(bucket), key, entry, 1) }

// have notes an entry of the current row, which belongs to an index.
func (v *verifier) have(key, entry []byte) { v.compare(v.bucket, key, entry, -1) }

// compare adds times to how often an entry is required.
func (v *verifier) compare(bucket string, key, entry []byte, times int) {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	_, _ = h.Write(key)
	c := v.comparisons[bucket]
	cell := h.Sum64() % uint64(len(c.cells))
	_, _ = h.Write(entry)
	c.cells[cell] += uint64(times) * (h.Sum64() | 1) // odd, so that the product is zero only for 0
	if !c.kept[cell] {
		return
	}
	row := c.rows[string(key)]
	if row == nil {
		row = make(map[string]*unbalanced)
		c.rows[string(key)] = row
	}
	u := row[string(entry)]
	if u == nil {
		u = new(unbalanced)
		row[string(entry)] = u
	}
	if times > 0 && u.by == "" {
		u.by = fmt.Sprintf("%s %q", v.bucket, v.key)
	}
	if u.excess += times; u.excess == 0 {
		delete(row, string(entry))
	}
}

// nameDifferences reports the rows that the comparisons found to differ.
func (v *verifier) nameDifferences() {
	differ := false
	for _, t := range tables {
		c := v.comparisons[string(t.bucket)]
		if c == nil || v.broken[string(t.bucket)] || v.broken[string(t.source)] {
			delete(v.comparisons, string(t.bucket))
			continue
		}
		c.rows, c.kept = make(map[string]map[string]*unbalanced), make(map[uint64]bool)
		for cell, sum := range c.cells {
			switch {
			case sum == 0:
			case len(c.kept) < maxProblems:
				c.kept[uint64(cell)] = true
			default:
				v.report.More++
			}
		}
		differ = differ || len(c.kept) > 0
	}
	if !differ {
		return
	}
	report := v.report
	v.report = new(Report) // the first reading has reported all other problems
	v.readTables()
	v.report = report
	for _, t := range tables {
		c := v.comparisons[string(t.bucket)]
		if c == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(c.rows)) {
			if problem := differences(c.rows[key]); problem != "" {
				v.problem(t.bucket, []byte(key), problem)
			}
		}
	}
}

// differences describes the unbalanced entries of a row.
func differences(row map[string]*unbalanced) (problem string) {
	by, extra := "", false
	for _, u := range row {
		if extra = extra || u.excess < 0; u.excess > 0 && (by == "" || u.by < by) {
			by = u.by
		}
	}
	switch {
	case by != "" && extra:
		return "differs from what " + by + " requires"
	case by != "":
		return "is missing or incomplete: required by " + by
	}
	return unless(!extra, "is superfluous, or contains too much: no readable row requires it")
}
