package transfer

import (
	"encoding/base64"
	"slices"
	"strings"
)

// kinds lists the kinds in the order of an export.
var kinds = []Kind{KindKey, KindWebhook, KindRequest, KindAlert, KindDedupKey, KindScan, KindEvent, KindRecovery, KindAuditEntry}

// A Filler fills a page of an export. It is for authors of stores.
type Filler struct {
	page     Page
	kind     Kind
	limit    int
	size     int
	examined int
	full     bool
}

// maxExamined is the maximum number of rows of other accounts that a page of an export skips.
const maxExamined = 1 << 16

// Fill returns a page of Export. It calls rows for each kind in turn until the page is full. rows
// must begin after the row named by its parameter after, or with the first row if after is nil. It
// must go through the rows of the kind in ascending order, and call Add, Unreadable or Skip for
// each row until one of these returns false.
func Fill(after string, limit int, rows func(f *Filler, kind Kind, after []byte) error) (Page, error) {
	f := &Filler{limit: limit}
	begin, row, err := parsePosition(after)
	if err != nil {
		return Page{}, err
	}
	for _, f.kind = range kinds[begin:] {
		if err := rows(f, f.kind, row); err != nil {
			return Page{}, err
		}
		if f.full {
			return f.page, nil
		}
		row = nil
	}
	f.page.Next = ""
	return f.page, nil
}

// Add adds the record of a row, and reports whether the page has room for more.
func (f *Filler) Add(row []byte, r Record) (more bool) {
	f.page.Records = append(f.page.Records, r)
	f.size += sizeOf(r)
	return f.at(row, len(f.page.Records) >= f.limit || f.size >= PageBytes)
}

// Unreadable adds the name of an unreadable record, and reports whether the page has room for more.
func (f *Filler) Unreadable(row []byte, name string) (more bool) {
	f.page.Unreadable = append(f.page.Unreadable, name)
	return f.at(row, len(f.page.Unreadable) >= f.limit)
}

// Skip skips a row of another account, and reports whether to continue.
func (f *Filler) Skip(row []byte) (more bool) {
	f.examined++
	return f.at(row, f.examined >= maxExamined)
}

func (f *Filler) at(row []byte, full bool) (more bool) {
	if f.full = f.full || full; f.full {
		f.page.Next = string(f.kind) + "." + base64.RawURLEncoding.EncodeToString(row)
	}
	return !f.full
}

// parsePosition splits a position into an index in kinds and a row.
func parsePosition(after string) (kind int, row []byte, err error) {
	if after == "" {
		return 0, nil, nil
	}
	name, encoded, _ := strings.Cut(after, ".")
	kind = slices.Index(kinds, Kind(name))
	row, err = base64.RawURLEncoding.DecodeString(encoded)
	if kind < 0 || err != nil || len(row) == 0 {
		return 0, nil, ErrPosition
	}
	return kind, row, nil
}

// sizeOf returns the approximate size of a record in bytes.
func sizeOf(r Record) int {
	switch r := r.(type) {
	case *Event:
		size := 256 + len(r.Body)
		for i := range r.Deliveries {
			size += 128
			for j := range r.Deliveries[i].Attempts {
				size += 128 + len(r.Deliveries[i].Attempts[j].Response)
			}
		}
		return size
	case *Alert:
		return 128 + len(r.State)
	}
	return 512
}
