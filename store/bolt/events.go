package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [webhooks.Store].
func (s *Store) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (deliveries int, err error) {
	// What can be prepared outside of the step does not keep others waiting.
	e := s.newEvent(&event)
	defer e.release()
	err = s.writer.Run(ctx, func(b *batch) error {
		deliveries, _, err = s.enqueue(b, e, "")
		return err
	})
	return deliveries, err
}

// An event is an EncodedEvent that is to be stored, with its key in bucketEventIDs and
// its record.
type event struct {
	webhooks.EncodedEvent
	key    uint64
	record []byte
}

var eventPool = sync.Pool{New: func() any { return new(event) }}

// newEvent returns an event. It may be released once the step that it is for is over.
func (s *Store) newEvent(encoded *webhooks.EncodedEvent) *event {
	e := eventPool.Get().(*event)
	e.EncodedEvent = *encoded
	if !encoded.Timestamp.IsZero() {
		e.Timestamp = record.Round(encoded.Timestamp)
	}
	e.key = s.ids.secret.keyOf(encoded.Account, encoded.ID)
	e.record = record.AppendEvent(e.record[:0], encoded)
	return e
}

func (e *event) release() {
	e.EncodedEvent = webhooks.EncodedEvent{}
	eventPool.Put(e)
}

// enqueue stores an event for the only webhook, or if that is empty for all that
// are subscribed, and returns how many deliveries of it were pending at first, and
// whether it is new.
func (s *Store) enqueue(b *batch, e *event, only string) (deliveries int, isNew bool, err error) {
	if b.isErasing(e.Account) {
		return 0, false, auth.ErrErasing
	}
	if known, err := s.knownEvent(b, e); !errors.Is(err, webhooks.ErrNotFound) {
		return known.Deliveries, false, err
	}
	now := time.Now()
	at := s.clock.Published(s.lastPublished)
	to := s.accountWebhooks(b, e.Account).subscribedTo(e.Type)
	if only != "" {
		to = to.only(only)
	}
	active := to.hooks
	record.SetPublished(e.record, at, len(active))
	n, err := b.appendEvent(e, to.active, to.inactive)
	if err != nil {
		return 0, false, err
	}
	if err := s.notePublished(b, n, at); err != nil {
		return 0, false, err
	}
	s.noteID(b, e.key, n)
	if len(active) > 0 {
		b.AfterCommit(func() {
			s.published.put(&e.EncodedEvent, n+1, to.active, now)
			s.feed.published(n+1, active, now)
		})
	}
	return len(active), true, nil
}

// notePublished notes when the event of that number was published. A piece begins with it if the one before it
// was published under a clock that was ahead.
func (s *Store) notePublished(b *batch, number uint64, at time.Time) error {
	if s.lastPublished.Sub(at) > 24*time.Hour {
		if err := b.beginPiece(number); err != nil {
			return err
		}
		s.lastPublished = at
	}
	if at.After(s.lastPublished) {
		s.lastPublished = at
	}
	return nil
}

// loadNewest finds when the last event was published, and the dividers after it.
func (s *Store) loadNewest() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		s.lastPublished = s.publishedLast(tx)
		s.committedPublished = s.lastPublished
		if k, value := lastOf(tx.Bucket(bucketEvents).Cursor()); isDivider(k, value) {
			s.divided = binary.BigEndian.Uint64(k)
		}
		return nil
	})
}

// publishedLast returns when the newest event was published, apart from those that were published under a clock that was ahead,
// unless the last one was.
func (s *Store) publishedLast(tx *bbolt.Tx) (last time.Time) {
	var at time.Time
	for _, end := range pieces(tx) {
		if at = publishedAt(tx, end-1); at.After(last) && !s.clock.Ahead(at) {
			last = at
		}
	}
	if at.After(last) {
		last = at
	}
	return last
}

// lastPublished returns when the newest event was published; zero if there is none, or it
// cannot be read.
func lastPublished(tx *bbolt.Tx) (last time.Time) {
	for _, end := range pieces(tx) {
		if at := publishedAt(tx, end-1); at.After(last) {
			last = at
		}
	}
	return last
}

// publishedAt returns when the event of that number, or whose delivery has it, was published;
// zero if that cannot be read.
func publishedAt(tx *bbolt.Tx, number uint64) time.Time {
	segment, err := newSegments(tx).at(number)
	if err != nil {
		return time.Time{}
	}
	event, _ := segment.Event(segment.Index(number)) // zero if it cannot be read
	return event.PublishedAt
}
