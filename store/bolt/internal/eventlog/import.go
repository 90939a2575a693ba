package eventlog

import (
	"errors"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// An Import adds exported events to the log, in one step.
type Import struct {
	*Step
	found func(webhook string, d driver.PendingDelivery) error

	segment  record.SegmentBuilder // the segment being built
	noBodies bool
	first    []firstAttempt
	from     time.Time // publication time of the segment's first event
	last     time.Time // publication time of the log's last event
	begun    bool      // whether last is set
}

// Import returns an Import. The Import calls found with each pending delivery, without setting the
// Webhook of d.
func (s *Step) Import(found func(webhook string, d driver.PendingDelivery) error) *Import {
	return &Import{Step: s, found: found}
}

// maxSpan limits the time between the first and last event of an imported segment, because a
// segment is purged as a whole.
const maxSpan = time.Second

// PublishedAt returns the publication time of an imported event, limited by [transfer.NoLater].
func PublishedAt(r *transfer.Event) time.Time {
	return record.Round(transfer.NoLater(r.PublishedAt, time.Now()))
}

// Has reports whether the log has an event. published must be the result of PublishedAt; it
// identifies events whose ID was forgotten.
func (m *Import) Has(r *transfer.Event, published time.Time) (known bool, err error) {
	if r.Forgotten {
		return m.hasForgotten(r.Account, r.ID, published), nil
	}
	e := m.log.NewEvent(&r.EncodedEvent)
	defer e.Recycle()
	if _, err = m.Known(e); errors.Is(err, apierr.ErrNotFound) {
		return false, nil
	}
	return true, err
}

// hasForgotten reports whether an event with that ID was published at that time, whether or not its
// ID is forgotten.
func (m *Import) hasForgotten(account, id string, at time.Time) bool {
	for low, end := range pieces(m.tx) {
		for segment := range NewSegments(m.tx).from(firstWithin(m.tx, low, end, at)) {
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

// Add adds an event that the log lacks. The caller must call End after the last event.
func (m *Import) Add(r *transfer.Event) error {
	if !m.begun {
		_, end := bounds(m.tx)
		m.begun, m.last = true, publishedAt(m.tx, end-1)
	}
	published := PublishedAt(r)
	back := published.Before(m.last)
	if back || r.NoBody != m.noBodies || published.Sub(m.from) > maxSpan || m.segment.IsFull(len(r.Deliveries), r.Body) {
		if err := m.End(); err != nil {
			return err
		}
	}
	if m.segment.IsEmpty() {
		if err := m.writeSegment(); err != nil { // its numbers are lower
			return err
		}
		m.segment.Begin(m.tx.Bucket(schema.Events).Sequence() + 1)
		m.from = published
	}
	if m.noBodies, m.last = r.NoBody, published; published.After(m.writer.lastPublished) {
		m.writer.lastPublished = published
	}
	e := m.log.NewEvent(&r.EncodedEvent)
	defer e.Recycle()
	e.record = record.AppendPurged(e.record, r.NoBody, r.Forgotten)
	record.SetPublished(e.record, published, r.Matched)
	var fresh, skipped, others []string
	for i := range r.Deliveries {
		switch d := &r.Deliveries[i]; {
		case d.State == driver.Pending && d.AsPublished:
			fresh = append(fresh, d.WebhookID)
		case d.State == driver.Skipped:
			skipped = append(skipped, d.WebhookID)
		default:
			others = append(others, d.WebhookID)
		}
	}
	number := m.segment.AppendEvent(e.record, r.Body, fresh, skipped, others...)
	if back {
		if err := m.beginPiece(number); err != nil {
			return err
		}
	}
	if !r.Forgotten {
		m.noteID(e.key, number)
	}
	next := [3]uint64{number + 1, number + 1 + uint64(len(fresh)), number + 1 + uint64(len(fresh)+len(skipped))}
	for i := range r.Deliveries {
		d, class := &r.Deliveries[i], 2
		switch {
		case d.State == driver.Pending && d.AsPublished:
			class = 0
		case d.State == driver.Skipped:
			class = 1
		}
		if err := m.addDelivery(r, d, next[class]); err != nil {
			return err
		}
		next[class]++
	}
	return nil
}

// addDelivery adds the rows of a delivery whose number is reserved in the segment.
func (m *Import) addDelivery(r *transfer.Event, d *transfer.Delivery, number uint64) error {
	m.addAttempts(d, number)
	failed := d.State == driver.Dead
	if d.State == driver.Pending {
		p := record.Pending{Due: time.Now().Add(d.Wait), Attempts: d.Made, Before: d.Before, Recovered: d.Recovered, First: d.First}
		if d.AsPublished {
			if r.PublishedAt.Before(p.Due) {
				p.Due = r.PublishedAt
			}
		} else {
			value, err := m.encodePending(p)
			if err != nil {
				return err
			}
			if err := m.Append(schema.Pending, record.NumberKey(number), value); err != nil {
				return err
			}
		}
		if err := m.found(d.WebhookID, Report(number, &p)); err != nil {
			return err
		}
		failed = len(d.Attempts) > 0 && d.Attempts[len(d.Attempts)-1].Class != ""
	}
	if failed {
		m.noteFailed(d.WebhookID, number, true)
	}
	return nil
}

// addAttempts adds the attempts of a delivery. It chooses outcomes that result in the delivery's
// state or, if the delivery was made pending again, in its state before that.
func (m *Import) addAttempts(d *transfer.Delivery, number uint64) {
	state, settledBy := d.State, 0
	if len(d.Attempts) > 0 {
		settledBy = d.Attempts[len(d.Attempts)-1].Number
	}
	if d.State == driver.Pending {
		state, settledBy = d.Settled, d.Before
	}
	for i := range d.Attempts {
		a := &d.Attempts[i]
		outcome := driver.Retry
		if a.Number == settledBy {
			switch state {
			case driver.Delivered:
				outcome = driver.Deliver
			case driver.Dead:
				outcome = driver.GiveUp
			}
		}
		encoded := record.EncodeAttempt(a, outcome)
		if a.Number == 1 {
			m.first = append(m.first, firstAttempt{number, encoded})
		} else {
			m.appendAttempt(number, a.Number, encoded)
		}
	}
}

// End writes the segment being built, if it has events.
func (m *Import) End() error {
	if m.segment.IsEmpty() {
		return nil
	}
	row := &bitmap{last: m.segment.Last(), attempts: m.first}
	if err := m.writeBuilt(&m.segment, !m.noBodies); err != nil {
		return err
	}
	m.first = nil
	if len(row.attempts) == 0 {
		return nil
	}
	return m.writeFirstAttempts(row)
}
