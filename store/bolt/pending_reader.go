package bolt

import (
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// A numberRange is the numbers of deliveries from next to last.
type numberRange struct{ next, last uint64 }

func (s numberRange) isEmpty() bool { return s.next > s.last }

// A pendingReader visits pending deliveries.
type pendingReader struct {
	store       *Store
	tx          *bbolt.Tx
	version     uint64 // of the index, before tx began
	segments    *segments
	now, steady time.Time
	hooks       map[string]*webhooks.Webhook // nil: it is deleted, or its account is being erased

	full  func() bool                         // reports whether to stop after the row; nil: never
	visit func(webhooks.PendingDelivery)      // of a webhook that there is; unless every is set
	every func(webhook []byte, number uint64) // of any webhook; nil: none
}

func (s *Store) newPendingReader(tx *bbolt.Tx, version uint64) *pendingReader {
	now := time.Now()
	return &pendingReader{
		store: s, tx: tx, version: version, segments: newSegments(tx), now: now, steady: s.clock.Steady(now),
		hooks: make(map[string]*webhooks.Webhook),
	}
}

// read visits the deliveries in bucketFresh (0) or bucketPending (1) whose numbers are in the
// numberRange, and returns the rest of it.
func (r *pendingReader) read(bucket int, left numberRange) numberRange {
	name, row := bucketFresh, r.fresh
	if bucket == 1 {
		name, row = bucketPending, r.pending
	}
	c := r.tx.Bucket(name).Cursor()
	for k, value := c.Seek(record.NumberKey(left.next)); k != nil; k, value = c.Next() {
		if len(k) != 8 {
			continue
		}
		if r.full != nil && r.full() {
			return left
		}
		number := binary.BigEndian.Uint64(k) // in bucketFresh the last one of a segment
		if number < left.next {
			panic(disorder) // or else pages would never end
		}
		if number > left.last {
			break
		}
		row(number, value)
		left.next = number + 1
	}
	left.next = left.last
	if left.next++; left.next == 0 {
		left = numberRange{1, 0}
	}
	return left
}

// fresh visits those of a segment that are pending as they were published. If the segment
// cannot be decoded, its recipients are unknown: its deliveries stay until they expire.
func (r *pendingReader) fresh(last uint64, value []byte) {
	m, err := record.DecodeBitmap(value)
	if err != nil {
		return
	}
	segment, err := r.segments.at(last) // m.First would also be sought in the leaf before
	if err != nil {
		return
	}
	for i := range segment.Len() {
		event, err := segment.Event(i)
		due := event.PublishedAt
		if err != nil || due.After(r.now) {
			due = r.now // Load finds that it cannot be decoded; or the clock was set back
		}
		for number, webhook := range segment.Recipients(i) {
			if m.Has(number) {
				r.found(webhook, webhooks.PendingDelivery{Number: number, Due: due})
			}
		}
	}
}

// pending visits a delivery with a record of its own.
func (r *pendingReader) pending(number uint64, value []byte) {
	segment, err := r.segments.at(number)
	if err != nil {
		return
	}
	webhook, err := segment.Recipient(number)
	if err != nil {
		return
	}
	p := r.store.decodePending(value, r.now, r.steady)
	r.found(webhook, reportOf(number, nil, &p))
}

// reportOf returns the report of a delivery with a record.
func reportOf(number uint64, webhook *webhooks.Webhook, p *record.Pending) webhooks.PendingDelivery {
	return webhooks.PendingDelivery{
		Number: number, Webhook: webhook, Due: p.Due, Attempts: p.Attempts, Before: p.Before, Recovered: p.Recovered, First: p.First,
	}
}

// decodePending decodes a record, which is due by the clock of this process. steady is now by
// the clock of the file. What cannot be decoded counts for nothing: better late than never.
func (s *Store) decodePending(value []byte, now, steady time.Time) record.Pending {
	p, err := record.DecodePending(value)
	if err != nil {
		return record.Pending{Due: now}
	}
	p.Due = now.Add(p.Due.Sub(steady))
	return p
}

func (r *pendingReader) found(webhook []byte, d webhooks.PendingDelivery) {
	if r.every != nil {
		r.every(webhook, d.Number)
		return
	}
	w, known := r.hooks[string(webhook)]
	if !known {
		if found := r.store.webhookSeen(r.tx, r.version, string(webhook)); found != nil && !r.store.erasing.has(found.Account) {
			w = &found.Webhook
		}
		r.hooks[string(webhook)] = w
	}
	if d.Webhook = w; w != nil {
		r.visit(d)
	}
}

// webhookSeen returns the webhook of that ID as readers of tx see it, or as it is by now; nil if
// it is deleted. version is that of the index before tx began.
func (s *Store) webhookSeen(tx *bbolt.Tx, version uint64, id string) *indexedWebhook {
	w, changing := s.index.webhook(id)
	if w != nil && !changing {
		return w
	}
	if w = s.readIndexed(tx, id); w != nil {
		s.index.putRead(w, version)
	}
	return w
}
