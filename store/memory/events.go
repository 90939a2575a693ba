package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// An event is a stored event with its deliveries.
type event struct {
	driver.EncodedEvent
	seq        uint64
	published  time.Time
	matched    int         // number of deliveries that were pending at publication
	deliveries []*delivery // ascending by webhook ID
	noBody     bool        // the body was purged
}

// A delivery is the stored form of a [driver.Delivery].
type delivery struct {
	driver.Delivery
	event   *event
	settled driver.DeliveryState // state before the delivery was last made pending

	// The fields below are for pending deliveries, as in [driver.PendingDelivery].
	due              time.Time
	before           int
	recovered, first bool
}

// Enqueue implements [driver.WebhookStore].
func (s *Store) Enqueue(ctx context.Context, encoded driver.EncodedEvent) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	deliveries, _ := s.enqueue(encoded, "")
	return deliveries, nil
}

// enqueue stores an event for all subscribed webhooks or, if only is not empty, for the webhook
// with that ID. It returns the number of initially pending deliveries, and whether the event is
// new.
func (s *Store) enqueue(encoded driver.EncodedEvent, only string) (deliveries int, isNew bool) {
	name := ref{encoded.Account, encoded.ID}
	if known := s.events[name]; known != nil {
		return known.matched, false
	}
	encoded.Timestamp = stored(encoded.Timestamp)
	s.lastSeq++
	now := time.Now()
	s.published = s.publication()
	e := &event{EncodedEvent: encoded, seq: s.lastSeq, published: s.published}
	var pending []driver.PendingDelivery
	for _, r := range s.webhooks[e.Account] {
		w := r.record
		if !w.Subscribes(e.Type, e.Scope) || !w.Resources.Allows(e.Resource) || only != "" && only != w.ID {
			continue
		}
		d := &delivery{event: e}
		d.Delivery = driver.Delivery{EventID: e.ID, WebhookID: w.ID, Type: e.Type, Resource: e.Resource, PublishedAt: e.published, State: driver.Skipped}
		e.deliveries = append(e.deliveries, d)
		s.deliveries[d.ref()] = d
		if w.Active {
			d.makePending(now, false, false)
			pending = append(pending, s.report(d))
		}
	}
	e.matched, e.Scope = len(pending), ""
	s.log = append(s.log, e)
	s.events[name] = e
	s.added(pending...)
	return e.matched, true
}

// publication returns the PublishedAt for an event stored now. It never decreases; see
// [clock.Clock.Published].
func (s *Store) publication() time.Time { return stored(s.clock.Published(s.published)) }

// makePending makes a new or settled delivery pending.
func (d *delivery) makePending(due time.Time, recovered, first bool) {
	d.settled, d.State = d.State, driver.Pending
	d.before, d.recovered, d.first = d.made(), recovered, first
	d.makeDue(due)
}

func (d *delivery) makeDue(due time.Time) { d.due, d.NextAttemptAt = due, stored(due) }

// settleAgain restores the state of a pending delivery that was Delivered or Dead before it was
// last made pending. For other deliveries it does nothing and returns false.
func (d *delivery) settleAgain() bool {
	if d.settled != driver.Delivered && d.settled != driver.Dead {
		return false
	}
	d.State, d.NextAttemptAt = d.settled, time.Time{}
	return true
}

func (d *delivery) ref() driver.DeliveryRef {
	return driver.DeliveryRef{WebhookID: d.WebhookID, Number: d.event.seq}
}

// made returns the number of the last attempt, or 0 if there is none.
func (d *delivery) made() int {
	if n := len(d.Attempts); n > 0 {
		return d.Attempts[n-1].Number
	}
	return 0
}

// find returns the event's delivery to the webhook, or nil.
func (e *event) find(webhook string) *delivery {
	i, ok := slices.BinarySearchFunc(e.deliveries, webhook, func(d *delivery, id string) int { return strings.Compare(d.WebhookID, id) })
	if !ok {
		return nil
	}
	return e.deliveries[i]
}

func (s *Store) remove(d *delivery) {
	d.event.deliveries = slices.DeleteFunc(d.event.deliveries, func(other *delivery) bool { return other == d })
	delete(s.deliveries, d.ref())
}

// copied returns a copy of the delivery that is safe to return to callers.
func (d *delivery) copied() driver.Delivery {
	out := d.Delivery
	out.Attempts = slices.Clone(d.Attempts)
	return out
}

// EventDeliveries implements [driver.WebhookStore].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) ([]driver.Delivery, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	e := s.events[ref{account, eventID}]
	if e == nil {
		return nil, apierr.ErrNotFound
	}
	list := make([]driver.Delivery, 0, len(e.deliveries))
	for _, d := range e.deliveries {
		list = append(list, d.copied())
	}
	return list, nil
}
