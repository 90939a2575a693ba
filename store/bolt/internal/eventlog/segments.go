package eventlog

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// appendEvent adds an event with its pending and skipped deliveries to the batch's open segment,
// and returns the event's number. If the segment is full, it first writes it and begins another.
func (s *Step) appendEvent(e *Event, active, inactive []string) (number uint64, err error) {
	s.MarkWritten()
	segment := &s.writer.segment
	if segment.IsFull(len(active)+len(inactive), e.Body) {
		if err := s.writeSegment(); err != nil {
			return 0, err
		}
	}
	if segment.IsEmpty() {
		segment.Begin(s.tx.Bucket(schema.Events).Sequence() + 1)
	}
	return segment.AppendEvent(e.record, e.Body, active, inactive), nil
}

// writeSegment writes the batch's open segment, if there is one.
func (s *Step) writeSegment() error {
	if s.writer.segment.IsEmpty() {
		return nil
	}
	return s.writeBuilt(&s.writer.segment, true)
}

// writeBuilt writes a segment, with or without the bodies of its events.
func (s *Step) writeBuilt(segment *record.SegmentBuilder, withBodies bool) error {
	last := segment.Last()
	if err := s.tx.Bucket(schema.Events).SetSequence(last); err != nil {
		return err
	}
	key := record.NumberKey(last)
	events, bodies := segment.Records()
	if err := s.Append(schema.Events, key, events); err != nil {
		return err
	}
	s.published += len(events)
	if withBodies {
		s.published += len(bodies)
		if err := s.Append(schema.Events, bodiesKey(key), bodies); err != nil {
			return err
		}
	}
	if !segment.Pending.IsEmpty() {
		if err := s.Append(schema.Fresh, key, segment.Pending.Encode()); err != nil {
			return err
		}
	}
	if !segment.Skipped.IsEmpty() {
		return s.Append(schema.Skipped, key, segment.Skipped.Encode())
	}
	return nil
}

// bodiesKey returns the key of a segment's bodies. The bodies are stored next to their segment,
// because a separate bucket would add some pages to each commit.
func bodiesKey(segment []byte) []byte { return append(segment[:8:8], 'b') }

// bodiesOf returns the bodies of the segment's events, or nil if they have been purged.
func bodiesOf(tx *bbolt.Tx, segment *record.Segment) []byte {
	return tx.Bucket(schema.Events).Get(bodiesKey(segment.Key))
}

// errNoSegment is returned if no segment contains a number, because its event was purged, or
// erased with its account.
var errNoSegment = fmt.Errorf("%w: no segment", record.ErrCorrupt)

// Segments finds segments, and caches the segment found last.
type Segments struct {
	cursor *bbolt.Cursor
	found  record.Segment
}

// NewSegments returns the segments of a transaction.
func NewSegments(tx *bbolt.Tx) *Segments { return &Segments{cursor: tx.Bucket(schema.Events).Cursor()} }

// At returns the segment that contains the number.
func (s *Segments) At(number uint64) (*record.Segment, error) {
	if s.found.First <= number && number <= s.found.Last {
		return &s.found, nil
	}
	key, value := s.cursor.Seek(record.NumberKey(number))
	for IsDivider(key, value) { // the divider of an erased segment
		key, value = s.cursor.Next()
	}
	found, err := record.DecodeSegment(key, value)
	if key == nil || err == nil && number < found.First {
		err = errNoSegment
	}
	if err != nil {
		s.found = record.Segment{}
		return nil, err
	}
	s.found = found
	return &s.found, nil
}

// from returns the readable segments, starting with the segment that contains the number, or the
// next one.
func (s *Segments) from(number uint64) iter.Seq[*record.Segment] {
	return func(yield func(*record.Segment) bool) {
		for k, value := s.cursor.Seek(record.NumberKey(number)); k != nil; k, value = s.cursor.Next() {
			if len(k) != 8 {
				continue // k is the key of bodies or of a divider
			}
			var err error
			if s.found, err = record.DecodeSegment(k, value); err == nil && !yield(&s.found) {
				return
			}
		}
	}
}

// eventFrom returns the publication time of an event, and the number after its last delivery.
// number is the number of the event or of one of its deliveries. If the event is unreadable, the
// results are for the next readable event; end is 0 if there is none.
func (s *Segments) eventFrom(number uint64) (end uint64, published time.Time) {
	for segment := range s.from(number) {
		for i := max(0, segment.Index(number)); i < segment.Len(); i++ {
			if event, err := segment.Event(i); err == nil {
				return segment.End(i), event.PublishedAt
			}
		}
	}
	return 0, time.Time{}
}

// bounds returns the number of the first event, and the number after the last; both are 0 if there
// is none.
func bounds(tx *bbolt.Tx) (first, end uint64) {
	for s := range NewSegments(tx).from(0) {
		first = s.First
		break
	}
	c := tx.Bucket(schema.Events).Cursor()
	last, value := rows.Last(c)
	for IsDivider(last, value) { // the segment before the dividers may have been erased
		last, value = c.Prev()
	}
	if first == 0 || len(last) < 8 {
		return 0, 0
	}
	return first, binary.BigEndian.Uint64(last) + 1
}

// firstSince returns the number of the first event published at or after the given time. If there
// is none, it returns the number after the last event. All events before the result are older.
func firstSince(tx *bbolt.Tx, at time.Time) (first uint64) {
	for low, end := range pieces(tx) {
		if first = firstWithin(tx, low, end, at); first < end {
			break
		}
	}
	return first
}

// firstKept is like firstSince, for a purge. Events at the end of a piece may have been published
// while the clock was ahead. They are in fact older than the first event of the next piece, but
// because of their recorded times firstSince would keep them and all later events.
func (l *Log) firstKept(tx *bbolt.Tx, at time.Time) (first uint64) {
	kept := false
	for low, end := range pieces(tx) {
		since := firstWithin(tx, low, end, at)
		if since > low || !kept {
			first, kept = since, since < end
		}
		if since < end && !l.options.Clock.Ahead(publishedAt(tx, since)) {
			break
		}
	}
	return first
}

// endBefore returns a number. All events from this number on were published at or after the given
// time.
func endBefore(tx *bbolt.Tx, at time.Time) (end uint64) {
	for low, high := range pieces(tx) {
		if first := firstWithin(tx, low, high, at); end == 0 || first > low {
			end = first
		}
	}
	return end
}

// firstWithin returns the number of the first event in [low, last) that was published at or after
// the given time, or last if there is none. It searches in growing strides from the oldest event,
// because the clock may have been set back. Then later events have earlier times, which must not
// make the events before them count as old.
func firstWithin(tx *bbolt.Tx, low, last uint64, at time.Time) uint64 {
	found := NewSegments(tx)
	older := func(number uint64) (end uint64, older bool) {
		end, published := found.eventFrom(number)
		return end, end > 0 && published.Before(at)
	}
	high := low
	for stride := uint64(1); high < last; stride *= 2 {
		end, old := older(high)
		if !old {
			break
		}
		low = max(end, high+1)
		high = min(low+stride, last)
	}
	for low < high { // events before low are too old; the event at high is not
		middle := low + (high-low)/2
		if end, old := older(middle); old {
			low = max(end, middle+1)
		} else {
			high = middle
		}
	}
	return low
}
