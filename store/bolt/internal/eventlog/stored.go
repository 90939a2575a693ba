package eventlog

import (
	"bytes"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A Stored is an event together with its segment.
type Stored struct {
	record.Event
	segment *record.Segment
	index   int
}

// Number returns the event's number.
func (e *Stored) Number() uint64 { return e.segment.Number(e.index) }

// DeliveryTo returns the number of the event's delivery to a webhook.
func (e *Stored) DeliveryTo(webhook string) (number uint64, ok bool) {
	return e.segment.DeliveryTo(e.index, webhook)
}

// Body returns the body of an event, or nil if it has been purged or is unreadable.
func (v *View) Body(e *Stored) []byte {
	pack, err := record.DecodePack(bodiesOf(v.tx, e.segment))
	if err != nil {
		return nil
	}
	return bytes.Clone(pack.At(e.index))
}

// HasBody reports whether the body of an event is stored.
func (v *View) HasBody(e *Stored) bool { return bodiesOf(v.tx, e.segment) != nil }

// Deliveries returns the deliveries of an event, ordered by webhook.
func (v *View) Deliveries(e *Stored) (list []driver.Delivery, err error) {
	for number, webhook := range e.segment.Recipients(e.index) {
		d, err := v.Delivery(e, number, string(webhook))
		if err != nil {
			return nil, err
		}
		if d.State != "" {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b driver.Delivery) int { return strings.Compare(a.WebhookID, b.WebhookID) })
	return list, nil
}

// Delivery returns a delivery of the event. If it has rows of several states, pending takes
// precedence over settled, and settled over skipped. The State is empty if the delivery has been
// purged, or was pending when its webhook was deleted: rows of such pending deliveries are ignored,
// and removed later.
func (v *View) Delivery(e *Stored, number uint64, webhook string) (driver.Delivery, error) {
	return v.log.deliveryOf(v.tx, e.segment, &e.Event, number, webhook)
}

func (l *Log) deliveryOf(tx *bbolt.Tx, segment *record.Segment, event *record.Event, number uint64, webhook string) (driver.Delivery, error) {
	d := driver.Delivery{EventID: event.ID, WebhookID: webhook, Type: event.Type, Resource: event.Resource, PublishedAt: event.PublishedAt}
	there := l.hasWebhook(tx, []byte(webhook))
	if there && inBitmap(tx, schema.Fresh, number) {
		d.State, d.NextAttemptAt = driver.Pending, event.PublishedAt
		return d, nil
	}
	if inBitmap(tx, schema.Skipped, number) {
		d.State = driver.Skipped
	}
	attempts, state, err := attemptsAt(tx, segment, number)
	if err != nil {
		return d, err
	}
	if d.Attempts = attempts; state != "" {
		d.State = state
	}
	if value := tx.Bucket(schema.Pending).Get(record.NumberKey(number)); value != nil && there {
		p, err := record.DecodePending(value)
		if err != nil {
			return d, err
		}
		d.State, d.NextAttemptAt = driver.Pending, l.options.Clock.Wall(p.Due)
	}
	return d, nil
}
