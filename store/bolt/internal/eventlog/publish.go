package eventlog

import (
	"encoding/binary"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// An Event is an event to store, with the key of its ID and its encoded record.
type Event struct {
	driver.EncodedEvent
	key    uint64
	record []byte
}

var eventPool = sync.Pool{New: func() any { return new(Event) }}

// NewEvent prepares an event to publish. Call Recycle only after its step has ended.
func (l *Log) NewEvent(encoded *driver.EncodedEvent) *Event {
	e := eventPool.Get().(*Event)
	e.EncodedEvent = *encoded
	if !encoded.Timestamp.IsZero() {
		e.Timestamp = record.Round(encoded.Timestamp)
	}
	e.key = l.ids.secret.KeyOf(encoded.Account, encoded.ID)
	e.record = record.AppendEvent(e.record[:0], encoded)
	return e
}

// Recycle reuses the memory of an event.
func (e *Event) Recycle() {
	e.EncodedEvent = driver.EncodedEvent{}
	eventPool.Put(e)
}

// Publish stores an event with its deliveries, which are pending for active webhooks and skipped
// for inactive ones. It returns the number of the first delivery; the others have the next
// numbers.
func (s *Step) Publish(e *Event, active, inactive []string) (first uint64, err error) {
	at := s.log.options.Clock.Published(s.writer.lastPublished)
	record.SetPublished(e.record, at, len(active))
	n, err := s.appendEvent(e, active, inactive)
	if err != nil {
		return 0, err
	}
	if err := s.notePublished(n, at); err != nil {
		return 0, err
	}
	s.noteID(e.key, n)
	return n + 1, nil
}

// notePublished records the publication time of the newest event. If the previous event was
// published while the clock was ahead, it begins a new piece.
func (s *Step) notePublished(number uint64, at time.Time) error {
	last := &s.writer.lastPublished
	if last.Sub(at) > 24*time.Hour {
		if err := s.beginPiece(number); err != nil {
			return err
		}
		*last = at
	}
	if at.After(*last) {
		*last = at
	}
	return nil
}

// loadNewest reads the publication time of the newest event, and finds the dividers.
func (w *Writer) loadNewest(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		w.lastPublished = w.log.publishedLast(tx)
		w.committedPublished = w.lastPublished
		if k, value := rows.Last(tx.Bucket(schema.Events).Cursor()); IsDivider(k, value) {
			w.divided = binary.BigEndian.Uint64(k)
		}
		return nil
	})
}

// publishedLast returns the publication time of the newest event. It ignores events published
// while the clock was ahead, unless such an event is the last of all.
func (l *Log) publishedLast(tx *bbolt.Tx) (last time.Time) {
	var at time.Time
	for _, end := range pieces(tx) {
		if at = publishedAt(tx, end-1); at.After(last) && !l.options.Clock.Ahead(at) {
			last = at
		}
	}
	if at.After(last) {
		last = at
	}
	return last
}

// LastPublished returns the publication time of the newest event. It returns the zero time if
// there is no event, or the event is unreadable.
func LastPublished(tx *bbolt.Tx) (last time.Time) {
	for _, end := range pieces(tx) {
		if at := publishedAt(tx, end-1); at.After(last) {
			last = at
		}
	}
	return last
}

// publishedAt returns the publication time of the event with the number, or with a delivery of that
// number. It returns the zero time if the event is unreadable.
func publishedAt(tx *bbolt.Tx, number uint64) time.Time {
	segment, err := NewSegments(tx).At(number)
	if err != nil {
		return time.Time{}
	}
	event, _ := segment.Event(segment.Index(number)) // zero if unreadable
	return event.PublishedAt
}
