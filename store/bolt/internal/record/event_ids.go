package record

import (
	"encoding/binary"
	"slices"
)

// An IDEntry maps the key of an event ID to the number of the event. Several IDs may share a key,
// so a lookup must check the ID in the event.
type IDEntry struct{ Key, Number uint64 }

// MaxIDEntries is the maximum number of entries in a row of IDs: four rows fill a page.
const MaxIDEntries = 80

// EncodeIDEntries encodes entries, which must be sorted by key.
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

// AppendIDEntries decodes a record and appends its entries.
func AppendIDEntries(entries []IDEntry, record []byte) ([]IDEntry, error) {
	d := newDecoder(record)
	last := uint64(0)
	for len(d.rest) > 0 && !d.failed {
		last += d.uint()
		entries = append(entries, IDEntry{last, d.uint()})
	}
	return entries, d.err()
}

// AppendIDNumbers appends the numbers that the record has for key, unless numbers already contains
// them. It reads no entries after key.
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
