package bolt

import (
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// lookEvent reports whether an event is not there. A forgotten one is looked for among those
// published at the same time.
func (m *importer) lookEvent(r *transfer.Event) (isNew bool, err error) {
	for i := range r.Deliveries {
		if d := &r.Deliveries[i]; d.State == webhooks.Pending && m.ownerOf(d.WebhookID) != r.Account {
			return false, fmt.Errorf("event %q of account %q: %w: it is pending for webhook %q, which is not there", r.ID, r.Account, transfer.ErrRecord, d.WebhookID)
		}
	}
	name := record.Prefixed(r.Account, r.ID)
	if !r.Forgotten {
		if !m.first(r, name) {
			return false, nil
		}
		e := m.store.newEvent(&r.EncodedEvent)
		defer e.release()
		if _, err := m.store.knownEvent(m.batch, e); !errors.Is(err, webhooks.ErrNotFound) {
			return false, err
		}
		return true, nil
	}
	at := record.Round(transfer.NoLater(r.PublishedAt, time.Now()))
	return m.first(r, append(name, at.String()...)) && !m.published(r.Account, r.ID, at), nil
}

// published reports whether there is an event of that id, known or not, that was published
// then.
func (m *importer) published(account, id string, at time.Time) bool {
	for low, end := range pieces(m.tx) {
		for segment := range newSegments(m.tx).from(firstWithin(m.tx, low, end, at)) {
			if segment.First >= end {
				break
			}
			for i := range segment.Len() {
				event, err := segment.Event(i)
				if err == nil && event.PublishedAt.Equal(at) && event.ID == id && event.Account == account {
					return true
				}
			}
			if last, err := segment.Event(segment.Len() - 1); err == nil && last.PublishedAt.After(at) {
				break
			}
		}
	}
	return false
}

// A segmentImport is the segment that is being imported, and what its deliveries bring.
type segmentImport struct {
	record.SegmentBuilder
	noBodies bool
	first    []firstAttempt
	from     time.Time // when its first event was published
	last     time.Time // when the last event was published
	begun    bool      // last is known
	pending  []webhooks.PendingDelivery
}

// maxSpan is how far apart in time the events of an imported segment may be: what belongs to
// a segment is purged together.
const maxSpan = time.Second

func (m *importer) addEvent(r *transfer.Event) error {
	s := &m.events
	if !s.begun {
		_, end := bounds(m.tx)
		s.begun, s.last = true, publishedAt(m.tx, end-1)
		m.AfterCommit(func() {
			if len(s.pending) > 0 {
				m.store.feed.report(func(to webhooks.Scheduler) { to.Add(s.pending) })
			}
		})
	}
	published := record.Round(transfer.NoLater(r.PublishedAt, time.Now()))
	back := published.Before(s.last)
	if back || r.NoBody != s.noBodies || published.Sub(s.from) > maxSpan || s.IsFull(len(r.Deliveries), r.Body) {
		if err := m.writeImported(); err != nil {
			return err
		}
	}
	if s.IsEmpty() {
		s.Begin(m.tx.Bucket(bucketEvents).Sequence() + 1)
		s.from = published
	}
	if s.noBodies, s.last = r.NoBody, published; published.After(m.store.lastPublished) {
		m.store.lastPublished = published
	}
	e := m.store.newEvent(&r.EncodedEvent)
	defer e.release()
	e.record = record.AppendPurged(e.record, r.NoBody, r.Forgotten)
	record.SetPublished(e.record, published, r.Matched)
	var fresh, skipped, others []string
	for i := range r.Deliveries {
		switch d := &r.Deliveries[i]; {
		case d.State == webhooks.Pending && d.AsPublished:
			fresh = append(fresh, d.WebhookID)
		case d.State == webhooks.Skipped:
			skipped = append(skipped, d.WebhookID)
		default:
			others = append(others, d.WebhookID)
		}
	}
	number := s.AppendEvent(e.record, r.Body, fresh, skipped, others...)
	if back {
		if err := m.beginPiece(number); err != nil {
			return err
		}
	}
	if !r.Forgotten {
		m.store.noteID(m.batch, e.key, number)
	}
	next := [3]uint64{number + 1, number + 1 + uint64(len(fresh)), number + 1 + uint64(len(fresh)+len(skipped))}
	for i := range r.Deliveries {
		d, class := &r.Deliveries[i], 2
		switch {
		case d.State == webhooks.Pending && d.AsPublished:
			class = 0
		case d.State == webhooks.Skipped:
			class = 1
		}
		if err := m.addDelivery(r, d, next[class]); err != nil {
			return err
		}
		next[class]++
	}
	return nil
}

// addDelivery adds what there is of a delivery besides its place in the segment.
func (m *importer) addDelivery(r *transfer.Event, d *transfer.Delivery, number uint64) error {
	m.addAttempts(d, number)
	failed := d.State == webhooks.Dead
	if d.State == webhooks.Pending {
		p := record.Pending{Due: time.Now().Add(d.Wait), Attempts: d.Made, Before: d.Before, Recovered: d.Recovered, First: d.First}
		if d.AsPublished {
			if r.PublishedAt.Before(p.Due) {
				p.Due = r.PublishedAt
			}
		} else {
			value, err := m.store.encodePending(m.batch, p)
			if err != nil {
				return err
			}
			if err := m.Append(bucketPending, record.NumberKey(number), value); err != nil {
				return err
			}
		}
		w := m.store.indexed(m.batch, d.WebhookID)
		if w == nil {
			return record.ErrCorrupt
		}
		m.events.pending = append(m.events.pending, reportOf(number, &w.Webhook, &p))
		failed = len(d.Attempts) > 0 && d.Attempts[len(d.Attempts)-1].Class != ""
	}
	if failed {
		m.noteFailed(d.WebhookID, number, true)
	}
	return nil
}

// addAttempts adds the attempts, with the outcomes that make the delivery what it is, or was
// before it was made pending again.
func (m *importer) addAttempts(d *transfer.Delivery, number uint64) {
	state, settledBy := d.State, 0
	if len(d.Attempts) > 0 {
		settledBy = d.Attempts[len(d.Attempts)-1].Number
	}
	if d.State == webhooks.Pending {
		state, settledBy = d.Settled, d.Before
	}
	for i := range d.Attempts {
		a := &d.Attempts[i]
		outcome := webhooks.Retry
		if a.Number == settledBy {
			switch state {
			case webhooks.Delivered:
				outcome = webhooks.Deliver
			case webhooks.Dead:
				outcome = webhooks.GiveUp
			}
		}
		encoded := record.EncodeAttempt(a, outcome)
		if a.Number == 1 {
			m.events.first = append(m.events.first, firstAttempt{number, encoded})
		} else {
			m.appendAttempt(number, a.Number, encoded)
		}
	}
}

// writeImported writes the segment that is being imported, if there is one.
func (m *importer) writeImported() error {
	s := &m.events
	if s.IsEmpty() {
		return nil
	}
	row := &bitmap{last: s.Last(), attempts: s.first}
	if err := m.writeBuilt(&s.SegmentBuilder, !s.noBodies); err != nil {
		return err
	}
	s.first = nil
	if len(row.attempts) == 0 {
		return nil
	}
	return m.writeFirstAttempts(row)
}

// endEvents writes what is left to be written of events.
func (m *importer) endEvents() error { return m.writeImported() }
