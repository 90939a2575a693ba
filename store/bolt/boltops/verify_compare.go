package boltops

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
)

// A comparison compares the rows of an index bucket with the rows that other buckets require. It
// needs neither lookups nor memory for the rows: it adds a hash of each required row to a cell, and
// subtracts a hash of each existing row. Afterwards, each cell that is not zero contains a
// difference. If there is one, [verifier.nameDifferences] reads the file a second time, and keeps
// the rows of these cells.
//
// A row may consist of several entries, for example the numbers in a row of schema.Runs. Each entry
// is compared separately. All entries of a row belong to the same cell.
type comparison struct {
	cells [1 << 14]uint64
	// rows holds the unbalanced entries of the kept cells, during the second reading. The keys are
	// the key of the row and the entry.
	rows map[string]map[string]*unbalanced
	kept map[uint64]bool // the cells whose rows the second reading keeps
}

// An unbalanced entry is required more often or less often than it exists.
type unbalanced struct {
	excess int    // number of rows that require it, less the number of rows that have it
	by     string // the first row that requires it
}

// hashSeed is the same for both readings of a file.
var hashSeed = maphash.MakeSeed()

// want notes that the current row requires an entry in an index row with the given key.
func (v *verifier) want(bucket, key, entry []byte) { v.compare(string(bucket), key, entry, 1) }

// have notes an entry of the current row, which is a row of an index.
func (v *verifier) have(key, entry []byte) { v.compare(v.bucket, key, entry, -1) }

// compare adds times to the excess of an entry, see [unbalanced].
func (v *verifier) compare(bucket string, key, entry []byte, times int) {
	c := v.comparisons[bucket]
	if c == nil {
		return // a damaged page hides rows of the index, or rows that require its rows
	}
	var h maphash.Hash
	h.SetSeed(hashSeed)
	_, _ = h.Write(key)
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
