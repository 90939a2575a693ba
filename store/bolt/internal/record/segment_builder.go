package record

// MaxSegment and MaxSegmentBodies are how many numbers and how many bytes of bodies a
// segment has at most, unless a single event has more.
const (
	MaxSegment       = 4096
	MaxSegmentBodies = 32 << 10
)

// A SegmentBuilder builds segments, one after the other. Its memory serves one batch
// after the other.
type SegmentBuilder struct {
	Pending, Skipped Bitmap // deliveries
	first, next      uint64 // its first number, and the one after its last
	events, bodies   Packer
}

// IsEmpty reports whether the segment has no events.
func (s *SegmentBuilder) IsEmpty() bool { return s.events.len() == 0 }

// IsFull reports whether the segment has no room for an event of that many deliveries.
func (s *SegmentBuilder) IsFull(deliveries int, body []byte) bool {
	return !s.IsEmpty() && (s.next+1+uint64(deliveries)-s.first > MaxSegment || len(s.bodies.data)+len(body) > MaxSegmentBodies)
}

// Begin begins an empty segment, whose first event will have that number.
func (s *SegmentBuilder) Begin(first uint64) {
	s.first, s.next = first, first
	s.Pending.Reset(first)
	s.Skipped.Reset(first)
}

// AppendEvent adds an event by its record and its body, pending for the active webhooks
// and skipped by the inactive ones, and returns its number. The others' deliveries, which
// come last, are neither.
func (s *SegmentBuilder) AppendEvent(record, body []byte, active, inactive []string, others ...string) (number uint64) {
	number = s.next
	s.next += 1 + uint64(len(active)+len(inactive)+len(others))
	to := s.events.next()
	to.raw(NumberKey(number))
	for i, webhook := range active {
		to.string(webhook)
		s.Pending.Set(number + 1 + uint64(i))
	}
	for i, webhook := range inactive {
		to.string(webhook)
		s.Skipped.Set(number + 1 + uint64(len(active)+i))
	}
	for _, webhook := range others {
		to.string(webhook)
	}
	s.events.end()
	to.raw(record)
	s.events.end()
	s.bodies.next().raw(body)
	s.bodies.end()
	return number
}

// Last returns the last number of the segment.
func (s *SegmentBuilder) Last() uint64 { return s.next - 1 }

// Records returns the segment and the pack of its bodies, which are valid until Reset.
// It is empty then.
func (s *SegmentBuilder) Records() (segment, bodies []byte) {
	return s.events.Record(), s.bodies.Record()
}

// Reset empties the segment.
func (s *SegmentBuilder) Reset() {
	s.events.Reset()
	s.bodies.Reset()
}
