package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// Enqueue implements [webhooks.Store].
func (s *Store) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (deliveries int, err error) {
	// What can be made ready outside of the step does not keep others waiting.
	p := newPublication(&event)
	defer p.release()
	err = s.writer.Run(ctx, func(b *batch) error {
		deliveries, _, err = s.enqueue(b, p, "")
		return err
	})
	return deliveries, err
}

// A publication is an event that is to be stored.
type publication struct {
	event      webhooks.EncodedEvent
	id, record []byte
}

var publications = sync.Pool{New: func() any { return new(publication) }}

// newPublication returns one, which may be released when the batch that it is part of
// has ended.
func newPublication(event *webhooks.EncodedEvent) *publication {
	p := publications.Get().(*publication)
	p.event = *event
	if !event.Timestamp.IsZero() {
		p.event.Timestamp = time.UnixMilli(event.Timestamp.UnixMilli()).UTC() // as it is read
	}
	p.id = appendPrefixed(p.id[:0], event.ID, event.Account)
	p.record = appendEvent(p.record[:0], event)
	return p
}

func (p *publication) release() {
	p.event = webhooks.EncodedEvent{}
	publications.Put(p)
}

// enqueue stores an event for the only webhook, or if that is empty for all that
// are subscribed, and returns how many deliveries of it were owed at first, and
// whether it is new.
func (s *Store) enqueue(b *batch, p *publication, only string) (deliveries int, isNew bool, err error) {
	// Most ids are newer than all before, and need not be looked for.
	if bytes.Compare(p.id, s.newestEvent) > 0 {
		s.newestEvent = append(s.newestEvent[:0], p.id...)
	} else if key := b.Get(bucketEventIDs, p.id); key != nil {
		deliveries, err := owedAtFirst(b, binary.BigEndian.Uint64(key))
		return deliveries, false, err
	}
	now := time.Now()
	if now.After(s.lastPublished) {
		s.lastPublished = now
	}
	to := s.subscribers(b.tx, p.event.Account, p.event.Type)
	if only != "" {
		to = to.only(only)
	}
	active := to.active
	setPublished(p.record, s.lastPublished, len(active))
	n, err := b.publish(p.record, p.event.Body, active, to.inactive)
	if err != nil {
		return 0, false, err
	}
	if err := b.Append(bucketEventIDs, p.id, seqKey(n)); err != nil {
		return 0, false, err
	}
	if len(active) > 0 {
		b.AfterCommit(func() {
			s.recent.put(&p.event, n+1, len(active), now)
			s.queue.AddEach(active, to.standings, p.event.Account, n+1, now)
		})
	}
	return len(active), true, nil
}

// owedAtFirst returns how many deliveries of the event were owed when it was published.
func owedAtFirst(b *batch, number uint64) (int, error) {
	if err := b.Flush(); err != nil {
		return 0, err
	}
	segment, err := newSegments(b.tx).at(number)
	if err != nil {
		return 0, err
	}
	event, err := segment.event(segment.place(number))
	return event.deliveries, err
}

// loadNewest finds the greatest event id there is, and when the last event was
// published.
func (s *Store) loadNewest() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		last, _ := tx.Bucket(bucketEventIDs).Cursor().Last()
		s.newestEvent = bytes.Clone(last)
		segment, err := decodeSegment(tx.Bucket(bucketEvents).Cursor().Last())
		if err != nil {
			return nil
		}
		if event, err := segment.event(segment.len() - 1); err == nil {
			s.lastPublished = event.published
		}
		return nil
	})
}

// An event record begins with what is known only once it is stored, in a fixed
// size: when it was published, and how many deliveries were owed.
func appendEvent(record []byte, event *webhooks.EncodedEvent) []byte {
	e := append(encoder(record), recordVersion)
	e.raw(make([]byte, 12))
	e.time(event.Timestamp)
	e.string(string(event.Type))
	e.string(event.ID)
	e.string(event.Account)
	return e
}

func setPublished(record []byte, at time.Time, deliveries int) {
	binary.BigEndian.PutUint64(record[1:], uint64(at.UnixMilli()))
	binary.BigEndian.PutUint32(record[9:], uint32(deliveries))
}

type eventRecord struct {
	webhooks.EncodedEvent // without Body
	published             time.Time
	deliveries            int
}

func decodeEvent(record []byte) (eventRecord, error) {
	var r eventRecord
	d := newDecoder(record)
	if fixed := d.raw(12); fixed != nil {
		r.published = time.UnixMilli(int64(binary.BigEndian.Uint64(fixed))).UTC()
		r.deliveries = int(binary.BigEndian.Uint32(fixed[8:]))
	}
	r.Timestamp = d.time()
	r.Type = webhooks.EventType(d.string())
	r.ID = d.string()
	r.Account = d.string()
	if d.failed {
		return eventRecord{}, errRecord
	}
	return r, nil
}

// firstSince returns the number of the first event published then or later; one
// more than the last if there is none. It looks from the oldest on, in growing strides: under
// a clock that was set back events are published in the past, and those before them are
// not to be taken for as old.
func firstSince(tx *bbolt.Tx, at time.Time) uint64 {
	low, last := bounds(tx)
	found := newSegments(tx)
	older := func(number uint64) (end uint64, older bool) {
		_, end, published := found.eventFrom(number)
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
	for low < high { // events before low are too old, the one from high on is not
		middle := low + (high-low)/2
		if end, old := older(middle); old {
			low = max(end, middle+1)
		} else {
			high = middle
		}
	}
	return low
}

// eventFrom returns the number of the event that has the number given or whose
// delivery has, and the one after its last delivery's, and when it was published: or
// that of the next event that can be read. end is 0 if there is none.
func (s *segments) eventFrom(number uint64) (first, end uint64, published time.Time) {
	for segment := range s.from(number) {
		for i := max(0, segment.place(number)); i < segment.len(); i++ {
			if event, err := segment.event(i); err == nil {
				return segment.number(i), segment.end(i), event.published
			}
		}
	}
	return 0, 0, time.Time{}
}
