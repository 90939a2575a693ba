package record

import (
	"encoding/binary"
	"slices"
)

// An IDEntry says that the event of a number has an ID with that key. Several IDs may have
// the same key: the event tells.
type IDEntry struct{ Key, Number uint64 }

// MaxIDEntries is how many entries a row of IDs has at most: four rows fill a page.
const MaxIDEntries = 80

// EncodeIDEntries returns the record of entries by ascending keys.
func EncodeIDEntries(entries []IDEntry) []byte {
	e := newEncoder(12 * len(entries))
	last := uint64(0)
	for _, entry := range entries {
		e.uint(entry.Key - last)
		e.uint(entry.Number)
		last = entry.Key
	}
	return e
}

// AppendIDEntries appends the entries of a record.
func AppendIDEntries(entries []IDEntry, record []byte) ([]IDEntry, error) {
	d := newDecoder(record)
	last := uint64(0)
	for len(d.rest) > 0 && !d.failed {
		last += d.uint()
		entries = append(entries, IDEntry{last, d.uint()})
	}
	return entries, d.err()
}

// AppendIDNumbers appends the numbers that a key has in a record, unless they are there. It
// reads no further than that.
func AppendIDNumbers(numbers []uint64, record []byte, key uint64) ([]uint64, error) {
	if len(record) == 0 || record[0] != Version {
		return numbers, ErrCorrupt
	}
	last := uint64(0)
	for rest := record[1:]; len(rest) > 0; {
		distance, n := binary.Uvarint(rest)
		number, m := binary.Uvarint(rest[max(n, 0):])
		if n <= 0 || m <= 0 {
			return numbers, ErrCorrupt
		}
		if last, rest = last+distance, rest[n+m:]; last > key {
			break
		}
		if last == key && !slices.Contains(numbers, number) {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}
