package record

import (
	"encoding/binary"
	"iter"
	"sort"
)

// Events and deliveries share one sequence of numbers: an event is followed by its deliveries. The
// events of a commit are stored together as a segment, whose key is its last number. So the segment
// that contains a number is the first one whose key is at least the number. A purge removes a
// segment only when its last event is old enough.
//
// A segment has two records for each event: its number with the IDs of its webhooks, and the record
// made by AppendEvent. Bodies are purged earlier than events, so they are in a separate pack, under
// the same key.

// A Segment is a decoded segment, which shares memory with its record.
type Segment struct {
	Key         []byte
	First, Last uint64
	records     Pack
}

// DecodeSegment decodes the segment stored under key.
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

// Len returns the number of events.
func (s *Segment) Len() int { return s.records.Len() / 2 }

// Number returns the number of the event at index i.
func (s *Segment) Number(i int) uint64 {
	if r := s.records.At(2 * i); len(r) >= 8 {
		return binary.BigEndian.Uint64(r)
	}
	return 0
}

// End returns the number after the event at index i and its deliveries.
func (s *Segment) End(i int) uint64 {
	if i+1 < s.Len() {
		return s.Number(i + 1)
	}
	return s.Last + 1
}

// Index returns the index of the event to which the number belongs: the event's own number or the
// number of one of its deliveries.
func (s *Segment) Index(number uint64) int {
	return sort.Search(s.Len(), func(i int) bool { return s.Number(i) > number }) - 1
}

// Event returns the event at index i.
func (s *Segment) Event(i int) (Event, error) { return decodeEvent(s.records.At(2*i + 1)) }

// Recipients iterates over the deliveries of the event at index i. It yields the number of each
// delivery and the ID of its webhook, which shares memory with the record.
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

// Recipient returns the webhook ID of a delivery.
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

// Without returns the segment and the pack of its bodies, both without the events i for which
// drop(i) is true, and the new first number. bodies may be empty. If no event is left, the records
// are nil. The numbers of the remaining events do not change, so the numbers of removed events stay
// unused.
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
