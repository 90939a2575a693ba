package bolt

import (
	"encoding/binary"
	"iter"
	"sort"

	"go.etcd.io/bbolt"
)

// Events and deliveries have numbers of one series: an event one, and its deliveries
// those that follow. The events of a commit stand together, in a segment, under the
// last number in it: what stands under the first key that is not before a number is
// what has that number, and it is past its time when the last of it is.
//
// A segment has two records of each event: its number and the ids of the webhooks that
// it is for, and what it is, see appendEvent. The bodies, which are purged earlier, are
// a pack of their own under the same key.

// What a segment has at most, unless a single event has more. Several segments share a
// leaf of bbolt's, and all of a leaf is written again when one is added to it.
const (
	maxSegment       = 4096     // numbers
	maxSegmentBodies = 32 << 10 // bytes
)

// A segment is one that is read.
type segment struct {
	key         []byte
	first, last uint64
	records     pack
}

func decodeSegment(key, record []byte) (s segment, err error) {
	if len(key) != 8 {
		return s, errRecord
	}
	s.key, s.last = key, binary.BigEndian.Uint64(key)
	if s.records, err = decodePack(record); err != nil {
		return s, err
	}
	first := s.records.at(0)
	if len(first) < 8 {
		return s, errRecord
	}
	s.first = binary.BigEndian.Uint64(first)
	if s.first == 0 || s.first > s.last {
		return s, errRecord
	}
	return s, nil
}

// len returns how many events there are.
func (s *segment) len() int { return s.records.len() / 2 }

// number returns that of the event at a place.
func (s *segment) number(i int) uint64 {
	if r := s.records.at(2 * i); len(r) >= 8 {
		return binary.BigEndian.Uint64(r)
	}
	return 0
}

// end returns the number after those of the event at a place and its deliveries.
func (s *segment) end(i int) uint64 {
	if i+1 < s.len() {
		return s.number(i + 1)
	}
	return s.last + 1
}

// place returns that of the event which has the number, or whose delivery has.
func (s *segment) place(number uint64) int {
	return sort.Search(s.len(), func(i int) bool { return s.number(i) > number }) - 1
}

// recipients returns the numbers of the event's deliveries, and the ids of the
// webhooks, which are in the file's memory.
func (s *segment) recipients(i int) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		d := decoder{rest: s.records.at(2 * i)}
		d.raw(8)
		for n := s.number(i) + 1; len(d.rest) > 0 && n <= s.last; n++ {
			id := d.raw(d.uint())
			if d.failed || !yield(n, id) {
				return
			}
		}
	}
}

// recipient returns the id of the webhook whose delivery has the number.
func (s *segment) recipient(number uint64) ([]byte, error) {
	for n, id := range s.recipients(s.place(number)) {
		if n == number {
			return id, nil
		}
	}
	return nil, errRecord
}

// deliveryTo returns the number of the event's delivery to the webhook.
func (s *segment) deliveryTo(i int, webhook string) (number uint64, ok bool) {
	for n, id := range s.recipients(i) {
		if string(id) == webhook {
			return n, true
		}
	}
	return 0, false
}

func (s *segment) event(i int) (eventRecord, error) { return decodeEvent(s.records.at(2*i + 1)) }

// segments looks for segments, and knows the one it has found last.
type segments struct {
	cursor *bbolt.Cursor
	found  segment
}

func newSegments(tx *bbolt.Tx) *segments { return &segments{cursor: tx.Bucket(bucketEvents).Cursor()} }

// at returns the segment that has the number.
func (s *segments) at(number uint64) (*segment, error) {
	if s.found.first <= number && number <= s.found.last {
		return &s.found, nil
	}
	found, err := decodeSegment(s.cursor.Seek(seqKey(number)))
	if err == nil && number < found.first {
		err = errRecord
	}
	if err != nil {
		s.found = segment{}
		return nil, err
	}
	s.found = found
	return &s.found, nil
}

// from returns the segments that can be read, from the one on that has the number.
func (s *segments) from(number uint64) iter.Seq[*segment] {
	return func(yield func(*segment) bool) {
		for k, record := s.cursor.Seek(seqKey(number)); k != nil; k, record = s.cursor.Next() {
			var err error
			if s.found, err = decodeSegment(k, record); err == nil && !yield(&s.found) {
				return
			}
		}
	}
}

// bounds returns the first number of an event that there is, and the one after the
// last; both are 0 if there is none.
func bounds(tx *bbolt.Tx) (first, end uint64) {
	for s := range newSegments(tx).from(0) {
		first = s.first
		break
	}
	last, _ := tx.Bucket(bucketEvents).Cursor().Last()
	if first == 0 || len(last) != 8 {
		return 0, 0
	}
	return first, binary.BigEndian.Uint64(last) + 1
}
