package record

// MaxSegment and MaxSegmentBodies limit the numbers and the bytes of bodies in a segment, unless a
// single event has more.
const (
	MaxSegment       = 4096
	MaxSegmentBodies = 32 << 10
)

// A SegmentBuilder builds segments, one after the other. Its memory is reused between batches.
type SegmentBuilder struct {
	Pending, Skipped Bitmap // deliveries
	first, next      uint64 // the first number, and the number after the last
	events, bodies   Packer
}

func (s *SegmentBuilder) IsEmpty() bool { return s.events.len() == 0 }

// IsFull reports whether the segment has no room for an event with the body and this number of
// deliveries.
func (s *SegmentBuilder) IsFull(deliveries int, body []byte) bool {
	return !s.IsEmpty() && (s.next+1+uint64(deliveries)-s.first > MaxSegment || len(s.bodies.data)+len(body) > MaxSegmentBodies)
}

// Begin begins an empty segment, whose first event will get the number first.
func (s *SegmentBuilder) Begin(first uint64) {
	s.first, s.next = first, first
	s.Pending.Reset(first)
	s.Skipped.Reset(first)
}

// AppendEvent adds an event by its record and body, and returns its number. Its deliveries are
// pending for the active webhooks, skipped for the inactive ones, and neither for the others, which
// come last.
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

func (s *SegmentBuilder) Last() uint64 { return s.next - 1 }

// Records returns the segment and the pack of its bodies, and leaves the builder empty. Both are
// valid until Reset.
func (s *SegmentBuilder) Records() (segment, bodies []byte) {
	return s.events.Record(), s.bodies.Record()
}

func (s *SegmentBuilder) Reset() {
	s.events.Reset()
	s.bodies.Reset()
}
