package record

import (
	"encoding/binary"
	"iter"
	"sort"
)

// Events and deliveries have numbers of one series: an event one, and its deliveries
// those that follow. The events of a commit stand together, in a segment, under its
// last number: the segment that has a number is the first whose key is not before it,
// and a segment is too old once its last event is.
//
// A segment has two records of each event: its number and the ids of the webhooks that
// it is for, and what AppendEvent made. The bodies, which are purged earlier, are
// a pack of their own under the same key.

// A Segment is a decoded one, which refers to its record.
type Segment struct {
	Key         []byte
	First, Last uint64
	records     Pack
}

// DecodeSegment decodes the segment under that key.
func DecodeSegment(key, record []byte) (s Segment, err error) {
	if len(key) != 8 {
		return s, ErrCorrupt
	}
	s.Key, s.Last = key, binary.BigEndian.Uint64(key)
	if s.records, err = DecodePack(record); err != nil {
		return s, err
	}
	first := s.records.At(0)
	if len(first) < 8 {
		return s, ErrCorrupt
	}
	s.First = binary.BigEndian.Uint64(first)
	if s.First == 0 || s.First > s.Last {
		return s, ErrCorrupt
	}
	return s, nil
}

// Len returns how many events there are.
func (s *Segment) Len() int { return s.records.Len() / 2 }

// Number returns the number of the event at an index.
func (s *Segment) Number(i int) uint64 {
	if r := s.records.At(2 * i); len(r) >= 8 {
		return binary.BigEndian.Uint64(r)
	}
	return 0
}

// End returns the number after those of the event at an index and its deliveries.
func (s *Segment) End(i int) uint64 {
	if i+1 < s.Len() {
		return s.Number(i + 1)
	}
	return s.Last + 1
}

// Index returns the index of the event which has the number, or whose delivery has.
func (s *Segment) Index(number uint64) int {
	return sort.Search(s.Len(), func(i int) bool { return s.Number(i) > number }) - 1
}

// Event returns the event at an index.
func (s *Segment) Event(i int) (Event, error) { return decodeEvent(s.records.At(2*i + 1)) }

// Recipients returns the numbers of the event's deliveries, and the ids of the
// webhooks, which are in the record's memory.
func (s *Segment) Recipients(i int) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		d := decoder{rest: s.records.At(2 * i)}
		d.raw(8)
		for n := s.Number(i) + 1; len(d.rest) > 0 && n <= s.Last; n++ {
			id := d.raw(d.uint())
			if d.failed || !yield(n, id) {
				return
			}
		}
	}
}

// Recipient returns the id of the webhook whose delivery has the number.
func (s *Segment) Recipient(number uint64) ([]byte, error) {
	for n, id := range s.Recipients(s.Index(number)) {
		if n == number {
			return id, nil
		}
	}
	return nil, ErrCorrupt
}

// DeliveryTo returns the number of the event's delivery to the webhook.
func (s *Segment) DeliveryTo(i int, webhook string) (number uint64, ok bool) {
	for n, id := range s.Recipients(i) {
		if string(id) == webhook {
			return n, true
		}
	}
	return 0, false
}

// Without returns the records of the segment and of the pack of its bodies, which may be empty, without the
// events for which drop returns true, and the new first number. Numbers stay as they are, so
// those of the events left out belong to none. It returns nil if no event is left.
func (s *Segment) Without(bodies Pack, drop func(i int) bool) (events, kept []byte, first uint64) {
	var list, rest Packer
	for i := range s.Len() {
		if drop(i) {
			continue
		}
		if list.len() == 0 {
			first = s.Number(i)
		}
		for _, r := range [][]byte{s.records.At(2 * i), s.records.At(2*i + 1)} {
			list.next().raw(r)
			list.end()
		}
		if bodies.Len() > 0 {
			rest.next().raw(bodies.At(i))
			rest.end()
		}
	}
	if list.len() == 0 {
		return nil, nil, 0
	}
	if events = list.Record(); rest.len() > 0 {
		kept = rest.Record()
	}
	return events, kept, first
}
