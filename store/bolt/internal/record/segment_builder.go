package record

// MaxSegment is the maximum count of numbers in a segment, and MaxSegmentBodies the maximum size of
// its bodies in bytes. A single event may exceed them.
const (
	MaxSegment       = 4096
	MaxSegmentBodies = 32 << 10
)

// A SegmentBuilder builds one segment after another. Its memory is reused between batches.
type SegmentBuilder struct {
	Pending, Skipped Bitmap // deliveries
	first, next      uint64 // the first number, and the number after the last
	events, bodies   Packer
}

func (s *SegmentBuilder) IsEmpty() bool { return s.events.len() == 0 }

// IsFull reports whether the segment has no room for an event with this body and number of
// deliveries.
func (s *SegmentBuilder) IsFull(deliveries int, body []byte) bool {
	return !s.IsEmpty() && (s.next+1+uint64(deliveries)-s.first > MaxSegment || len(s.bodies.data)+len(body) > MaxSegmentBodies)
}

// Begin begins an empty segment. Its first event will get the number first.
func (s *SegmentBuilder) Begin(first uint64) {
	s.first, s.next = first, first
	s.Pending.Reset(first)
	s.Skipped.Reset(first)
}

// AppendEvent adds an event with the given record and body, and returns its number. The deliveries
// to the active webhooks are pending, the deliveries to the inactive webhooks are skipped, and the
// deliveries to the others, which come last, are neither.
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
