package bolt

import (
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// loadQueue adds the pending deliveries of the file to the queue, except those for
// webhooks that are gone.
func (s *Store) loadQueue() error {
	return s.db.View(func(tx *bbolt.Tx) error { return newLoader(s, tx).load() })
}

// A loader reads pending deliveries.
type loader struct {
	store    *Store
	tx       *bbolt.Tx
	segments *segments
	lanes    map[string]*loadedLane // by webhook
	now      time.Time
	steady   time.Time // by the clock that the file has
}

type loadedLane struct {
	id, account   string
	standing      queue.Standing
	gone, passive bool
	left          []uint64 // what was pending for it, if it is gone
}

func newLoader(s *Store, tx *bbolt.Tx) *loader {
	now := time.Now()
	return &loader{
		store: s, tx: tx, segments: newSegments(tx), lanes: make(map[string]*loadedLane), now: now, steady: s.clock.Steady(now),
	}
}

// load adds all pending deliveries to the queue.
func (l *loader) load() error {
	if err := l.each(bucketFresh, true, l.loadFresh); err != nil {
		return err
	}
	if err := l.each(bucketPending, false, l.loadPending); err != nil {
		return err
	}
	for _, lane := range l.lanes {
		if lane.passive {
			l.store.queue.Pause(lane.id)
		}
		l.store.leftovers.add(lane.id, lane.left)
	}
	return nil
}

// each loads the records of a bucket, whose segments are read ahead. They are under the same
// keys as those, or under numbers of deliveries.
func (l *loader) each(name []byte, sameKeys bool, load func(key, value []byte) error) error {
	bucket := l.tx.Bucket(name)
	stop := l.store.newReadAhead(l.tx).segmentsOf(bucket, sameKeys)
	defer stop()
	return bucket.ForEach(load)
}

// loadFresh loads the deliveries of a segment that are pending as they were published. If
// the segment cannot be read, it is unknown for whom they are: they stay until they expire.
func (l *loader) loadFresh(key, value []byte) error {
	m, err := record.DecodeBitmap(value)
	if err != nil || len(key) != 8 {
		return nil
	}
	segment, err := l.segments.at(binary.BigEndian.Uint64(key)) // m.First would be looked for in the leaf before, too
	if err != nil {
		return nil
	}
	for i := range segment.Len() {
		event, err := segment.Event(i)
		due := event.PublishedAt
		if err != nil || due.After(l.now) {
			due = l.now // it will be claimed as one that cannot be read, or the clock was set back
		}
		for number, webhook := range segment.Recipients(i) {
			if m.Has(number) {
				l.add(webhook, number, queue.Pending{Due: due})
			}
		}
	}
	return nil
}

// loadPending loads a delivery with a record of its own.
func (l *loader) loadPending(key, value []byte) error {
	if len(key) != 8 {
		return nil
	}
	number := binary.BigEndian.Uint64(key)
	segment, err := l.segments.at(number)
	if err != nil {
		return nil
	}
	webhook, err := segment.Recipient(number)
	if err != nil {
		return nil
	}
	p, err := record.DecodePending(value)
	due := l.now.Add(p.Due.Sub(l.steady))
	if err != nil {
		due = l.now // its event is there: better late than never
	}
	l.add(webhook, number, queue.Pending{Due: due, Attempts: p.Attempts, Before: p.Before, Recovered: p.Recovered})
	return nil
}

// add adds a delivery to the queue.
func (l *loader) add(webhook []byte, number uint64, o queue.Pending) {
	lane := l.lanes[string(webhook)]
	if lane == nil {
		lane = &loadedLane{id: string(webhook), account: string(l.tx.Bucket(bucketWebhookIDs).Get(webhook))}
		found, err := l.store.webhookOf(l.tx, lane.id)
		lane.gone = errors.Is(err, webhooks.ErrNotFound)
		lane.passive, lane.standing = err == nil && !found.Claimable(), queue.StandingOf(&found)
		l.lanes[lane.id] = lane
	}
	if lane.gone {
		lane.left = append(lane.left, number)
		return
	}
	o.Webhook, o.Account, o.Standing, o.Seq = lane.id, lane.account, lane.standing, number
	l.store.queue.Add(o)
}
