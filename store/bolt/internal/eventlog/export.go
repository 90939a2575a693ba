package eventlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// An exporter reads events for one page of an export.
type exporter struct {
	*transfer.Filler
	log     *Log
	tx      *bbolt.Tx
	account string // empty means all accounts
	now     time.Time
	gone    uint64 // IDs of events with lower numbers have been purged
}

// Export adds the account's events to a page, or all events if account is empty, starting after the
// given row.
func (v *View) Export(page *transfer.Filler, account string, after []byte, now time.Time) error {
	e := &exporter{Filler: page, log: v.log, tx: v.tx, account: account, now: now, gone: Number(v.tx, schema.MetaIDsGone)}

	from := uint64(0)
	if after != nil {
		if len(after) != 8 {
			return transfer.ErrPosition
		}
		from = binary.BigEndian.Uint64(after) + 1
	}
	c := e.tx.Bucket(schema.Events).Cursor()
	for k, value := c.Seek(record.NumberKey(from)); k != nil; k, value = c.Next() {
		if len(k) != 8 {
			continue // k is the key of bodies or of a divider
		}
		segment, err := record.DecodeSegment(k, value)
		if err != nil {
			if !e.Unreadable(bytes.Clone(k), fmt.Sprintf("the events up to number %d", binary.BigEndian.Uint64(k))) {
				return nil
			}
			continue
		}
		if !e.segment(&segment, from) {
			return nil
		}
	}
	return nil
}

// An exportedSegment is a segment with its bitmaps and bodies.
type exportedSegment struct {
	*record.Segment
	fresh, skipped record.Bitmap
	noBodies       bool
	bodies         record.Pack
}

func (e *exporter) segment(segment *record.Segment, from uint64) (more bool) {
	s := exportedSegment{Segment: segment}
	s.fresh, _ = record.DecodeBitmap(e.tx.Bucket(schema.Fresh).Get(segment.Key))
	s.skipped, _ = record.DecodeBitmap(e.tx.Bucket(schema.Skipped).Get(segment.Key))
	packed := bodiesOf(e.tx, segment)
	s.noBodies = packed == nil
	s.bodies, _ = record.DecodePack(packed)
	for i := range segment.Len() {
		number := segment.Number(i)
		if number < from {
			continue
		}
		row := record.NumberKey(number)
		event, err := segment.Event(i)
		switch {
		case err != nil:
			more = e.Unreadable(row, fmt.Sprintf("event number %d", number))
		case e.account != "" && event.Account != e.account:
			more = e.Skip(row)
		default:
			exported, unreadable := e.event(&s, i, &event)
			if unreadable != "" {
				more = e.Unreadable(row, fmt.Sprintf("%s of event %q of account %q", unreadable, event.ID, event.Account))
			} else {
				more = e.add(row, exported)
			}
		}
		if !more {
			return false
		}
	}
	return true
}

// add adds an event, unless its account is being erased.
func (e *exporter) add(row []byte, event *transfer.Event) (more bool) {
	if e.log.options.Erasing(event.Account) {
		return e.Skip(row)
	}
	return e.Add(row, event)
}

// event returns the exported form of the event at index i. If a part of the event is unreadable, it
// returns the name of that part instead.
func (e *exporter) event(s *exportedSegment, i int, event *record.Event) (exported *transfer.Event, unreadable string) {
	exported = &transfer.Event{
		EncodedEvent: event.EncodedEvent, PublishedAt: event.PublishedAt, Matched: event.Deliveries,
		NoBody: s.noBodies, Forgotten: event.Forgotten || s.Number(i) < e.gone,
	}
	if !s.noBodies {
		body := s.bodies.At(i)
		if body == nil {
			return nil, "the body"
		}
		exported.Body = bytes.Clone(body)
	}
	for number, webhook := range s.Recipients(i) {
		d := transfer.Delivery{WebhookID: string(webhook)}
		if err := e.delivery(s, number, &d); err != nil {
			return nil, fmt.Sprintf("the delivery to webhook %q", webhook)
		}
		if d.State != "" {
			exported.Deliveries = append(exported.Deliveries, d)
		}
	}
	slices.SortFunc(exported.Deliveries, func(a, b transfer.Delivery) int { return cmp.Compare(a.WebhookID, b.WebhookID) })
	return exported, ""
}

// delivery reads a delivery, like deliveryOf. If there is no such delivery, State remains empty.
func (e *exporter) delivery(s *exportedSegment, number uint64, d *transfer.Delivery) error {
	there := e.log.hasWebhook(e.tx, []byte(d.WebhookID))
	if there && s.fresh.Has(number) {
		d.State, d.AsPublished = driver.Pending, true
		return nil
	}
	attempts, state, err := attemptsAt(e.tx, s.Segment, number)
	if err != nil {
		return err
	}
	d.Attempts, d.State = attempts, state
	if value := e.tx.Bucket(schema.Pending).Get(record.NumberKey(number)); value != nil && there {
		p, err := record.DecodePending(value)
		if err != nil {
			return err
		}
		d.State, d.Settled = driver.Pending, state
		d.Made, d.Before, d.Recovered, d.First, d.Wait = p.Attempts, p.Before, p.Recovered, p.First, e.log.options.Clock.Wall(p.Due).Sub(e.now)
	} else if state == "" && s.skipped.Has(number) {
		d.State = driver.Skipped
	} else if state == "" {
		d.Attempts = nil // the webhook was deleted, which ended the delivery
	}
	return nil
}
