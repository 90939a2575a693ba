package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// An event is one that is stored.
type event struct {
	webhooks.EncodedEvent
	seq        uint64
	published  time.Time
	matched    int         // how many deliveries there were at first
	deliveries []*delivery // ascending by webhook id
	noBody     bool        // it was purged
}

// A delivery is in the queue if its state is Pending.
type delivery struct {
	webhooks.Delivery
	event   *event
	settled webhooks.DeliveryState // before it was last made pending

	// Of a pending one, as in [queue.Pending].
	before           int
	recovered, first bool
}

// place is where a delivery stands in the queue.
type place struct {
	webhook string
	seq     uint64
}

// Enqueue implements [webhooks.Store].
func (s *Store) Enqueue(ctx context.Context, encoded webhooks.EncodedEvent) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	deliveries, _ := s.enqueue(encoded, "")
	return deliveries, nil
}

// enqueue stores an event for the only webhook, or if that is empty for all that
// are subscribed, and returns how many pending deliveries that made at first, and
// whether it is new.
func (s *Store) enqueue(encoded webhooks.EncodedEvent, only string) (deliveries int, isNew bool) {
	name := ref{encoded.Account, encoded.ID}
	if known := s.events[name]; known != nil {
		return known.matched, false
	}
	encoded.Timestamp = stored(encoded.Timestamp)
	s.lastSeq++
	now := time.Now()
	s.published = s.publication()
	e := &event{EncodedEvent: encoded, seq: s.lastSeq, published: s.published}
	for _, r := range s.webhooks[e.Account] {
		w := r.record
		if !slices.Contains(w.Events, e.Type) || only != "" && only != w.ID {
			continue
		}
		d := &delivery{event: e}
		d.Delivery = webhooks.Delivery{EventID: e.ID, WebhookID: w.ID, Type: e.Type, PublishedAt: e.published, State: webhooks.Skipped}
		e.deliveries = append(e.deliveries, d)
		s.deliveries[place{w.ID, e.seq}] = d
		if w.Active {
			s.addPending(d, w, queue.Pending{Due: now})
			e.matched++
		}
	}
	s.log = append(s.log, e)
	s.events[name] = e
	return e.matched, true
}

// publication returns when an event is published that is stored now: not before
// those that are, see [clock.Clock.Published].
func (s *Store) publication() time.Time { return stored(s.clock.Published(s.published)) }

// addPending makes a settled delivery, or a new one, pending, as o says.
func (s *Store) addPending(d *delivery, w *webhooks.Webhook, o queue.Pending) {
	o.Webhook, o.Account, o.Seq, o.Standing = d.WebhookID, d.event.Account, d.event.seq, queue.StandingOf(w)
	o.Attempts = d.made()
	o.Before = o.Attempts
	s.queue.Add(o)
	d.settled, d.State, d.NextAttemptAt = d.State, webhooks.Pending, stored(o.Due)
	d.before, d.recovered, d.first = o.Before, o.Recovered, o.First
	if !w.Claimable() {
		s.queue.Pause(d.WebhookID)
	}
}

// made returns the number of the last attempt.
func (d *delivery) made() int {
	if n := len(d.Attempts); n > 0 {
		return d.Attempts[n-1].Number
	}
	return 0
}

// find returns the delivery to the webhook, or nil.
func (e *event) find(webhook string) *delivery {
	i, ok := slices.BinarySearchFunc(e.deliveries, webhook, func(d *delivery, id string) int { return strings.Compare(d.WebhookID, id) })
	if !ok {
		return nil
	}
	return e.deliveries[i]
}

// remove forgets the delivery.
func (s *Store) remove(d *delivery) {
	d.event.deliveries = slices.DeleteFunc(d.event.deliveries, func(other *delivery) bool { return other == d })
	delete(s.deliveries, place{d.WebhookID, d.event.seq})
}

// copied returns the delivery as it is given out.
func (d *delivery) copied() webhooks.Delivery {
	out := d.Delivery
	out.Attempts = slices.Clone(d.Attempts)
	return out
}

// EventDeliveries implements [webhooks.Store].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) ([]webhooks.Delivery, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	e := s.events[ref{account, eventID}]
	if e == nil {
		return nil, webhooks.ErrNotFound
	}
	list := make([]webhooks.Delivery, 0, len(e.deliveries))
	for _, d := range e.deliveries {
		list = append(list, d.copied())
	}
	return list, nil
}
