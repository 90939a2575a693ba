package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// explained counts the explanations that were judged, over all seeds.
var explained verdicts

type verdicts struct {
	mu    sync.Mutex
	count map[webhooks.Reason]int
	loose int // number of explanations of which only the delivery's state was checked
}

func (v *verdicts) add(reason webhooks.Reason, loose bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count == nil {
		v.count = make(map[webhooks.Reason]int)
	}
	if v.count[reason]++; loose {
		v.loose++
	}
}

func (v *verdicts) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, parts := 0, []string{}
	for _, reason := range slices.Sorted(maps.Keys(v.count)) {
		all += v.count[reason]
		parts = append(parts, fmt.Sprintf("%s %d", reason, v.count[reason]))
	}
	return fmt.Sprintf("%d explanations (%d loosely): %s", all, v.loose, strings.Join(parts, ", "))
}

// judgeExplanations compares the explanation for each event and webhook of the account with what
// the simulation knows.
func (a *account) judgeExplanations(ctx context.Context, s store.Store) {
	w, service := a.world, a.world.reach().api.Webhooks
	own := make(map[string]*event)
	ids := make(map[string]webhooks.StoredEvent)
	for _, e := range w.events.list {
		if e.account == a {
			own[e.id], ids[e.id] = e, webhooks.StoredEvent{ID: e.id}
		}
	}
	for query := (webhooks.EventQuery{Limit: 1000}); ; {
		page, err := s.ListEvents(ctx, a.id, query)
		if err != nil {
			w.breach("the store can be asked", nil, "ListEvents: %v", err)
			return
		}
		for _, e := range page.Events {
			ids[e.ID] = e
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	for id, listed := range ids {
		deliveries, err := s.EventDeliveries(ctx, a.id, id)
		if err != nil && !errors.Is(err, apierr.ErrNotFound) {
			w.breach("the store can be asked", nil, "EventDeliveries: %v", err)
			return
		}
		for _, k := range a.subscriber.all() {
			x, err := service.Explain(ctx, a.id, id, k.id)
			about := []string{id, k.name}
			if k.deleted {
				if !errors.Is(err, apierr.ErrNotFound) {
					w.breach("an explanation is right", about, "%s was deleted, and explained for %s: %v, %v", k.name, id, x, err)
				}
				continue
			}
			state := webhooks.DeliveryState("")
			if i := slices.IndexFunc(deliveries, func(d webhooks.Delivery) bool { return d.WebhookID == k.id }); i >= 0 {
				state = deliveries[i].State
			}
			var want []webhooks.Reason
			if e := own[id]; e != nil {
				want = a.subscriber.reasons(k, e)
			} else {
				want = a.subscriber.reasonsOfAlert(k, &listed, state)
			}
			if err != nil || x.State != state || want != nil && !slices.Contains(want, x.Reason) {
				w.breach("an explanation is right", about, "%s for %s, which is %q: got %s, %q, %v, want one of %q", id, k.name, state, x.Reason, x, err, want)
			}
			explained.add(x.Reason, want == nil)
		}
	}
}

// clockMoves reports whether the seed sets a clock, so that times cannot be compared.
func (w *world) clockMoves() bool {
	return len(w.plan.eras) > 1 || slices.ContainsFunc(w.plan.strikes, func(s strike) bool { return s.what == strikeWall || s.what == strikeClock })
}

// reasons returns the right reasons for an event of the publisher, or nil if any reason may be
// right.
func (s *subscriber) reasons(k *hook, e *event) []webhooks.Reason {
	if !e.stored {
		return []webhooks.Reason{webhooks.ReasonUnknownEvent}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *state
	ever := false
	for i := range k.states {
		st := &k.states[i]
		if !allows(st.resources, e.resource) {
			return nil // it may be filtered
		}
		if ever = ever || st.published; st.to < e.from {
			last = st
		} else if st.from <= e.to {
			return nil // it was changed at about that time
		}
	}
	switch {
	case !ever:
		return []webhooks.Reason{webhooks.ReasonNotSubscribed}
	case last != nil && last.published:
		return s.world.ledger.reasons(k, e)
	case s.world.clockMoves():
		return []webhooks.Reason{webhooks.ReasonCreatedLater, webhooks.ReasonNotSubscribed, webhooks.ReasonChangedLater, webhooks.ReasonThreshold}
	case last == nil:
		return []webhooks.Reason{webhooks.ReasonCreatedLater}
	case k.subscribes(published):
		return []webhooks.Reason{webhooks.ReasonChangedLater}
	}
	return []webhooks.Reason{webhooks.ReasonNotSubscribed}
}

// reasons returns the right reasons for an event to which the webhook was subscribed. When it is
// called, only disabled webhooks have pending deliveries.
func (l *ledger) reasons(k *hook, e *event) []webhooks.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.deliveries[[2]string{k.name, e.id}]
	switch {
	case d == nil:
		return []webhooks.Reason{webhooks.ReasonOff}
	case d.load != nil: // its last result may be stored
		return []webhooks.Reason{webhooks.ReasonOff, webhooks.ReasonDelivered, webhooks.ReasonGivenUp}
	case d.state == webhooks.Pending:
		return []webhooks.Reason{webhooks.ReasonOff}
	}
	reason := map[webhooks.DeliveryState]webhooks.Reason{webhooks.Delivered: webhooks.ReasonDelivered, webhooks.Dead: webhooks.ReasonGivenUp}[d.state]
	if k.resent { // perhaps while the webhook was off
		return []webhooks.Reason{reason, webhooks.ReasonOff}
	}
	return []webhooks.Reason{reason}
}

// reasonsOfAlert returns the right reasons for an event of package alerts whose delivery has the
// given state, or nil if any reason may be right.
func (s *subscriber) reasonsOfAlert(k *hook, e *webhooks.StoredEvent, state webhooks.DeliveryState) []webhooks.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := e.PublishedAt.Sub(s.world.began)
	switch of := k.states[0]; {
	case len(k.states) > 1 || state != "" || !allows(of.resources, e.Resource):
		return nil
	case !k.subscribes(e.Type):
		return []webhooks.Reason{webhooks.ReasonNotSubscribed}
	case s.world.clockMoves():
		return []webhooks.Reason{webhooks.ReasonCreatedLater, webhooks.ReasonThreshold}
	case at < of.from:
		return []webhooks.Reason{webhooks.ReasonCreatedLater}
	case at > of.to && e.Type == alerts.TypeBalanceLow:
		return []webhooks.Reason{webhooks.ReasonThreshold}
	case at > of.to:
		return []webhooks.Reason{""} // there must be a delivery
	}
	return nil
}

// explain checks the explanations for the account's last events while they may be pending.
func (s *subscriber) explain(ctx context.Context, k *hook) {
	var ids []string
	s.world.events.mu.Lock()
	for _, e := range slices.Backward(s.world.events.list) {
		if e.account == s.account && e.stored && len(ids) < 5 {
			ids = append(ids, e.id)
		}
	}
	s.world.events.mu.Unlock()
	for _, id := range ids {
		before, wall := s.is(k), s.world.wall.Load()
		call, end := context.WithTimeout(ctx, 3*time.Second)
		x, err := s.world.reach().api.Webhooks.Explain(call, s.account.id, id, k.id)
		end()
		after := s.is(k)
		if err != nil || x.State != webhooks.Pending || before == nil || after == nil || before.Version != after.Version || s.world.wall.Load() != wall {
			continue
		}
		want := []webhooks.Reason{webhooks.ReasonCircuitOpen, webhooks.ReasonRefused, webhooks.ReasonFailed, webhooks.ReasonWaiting}
		switch left := before.PausedUntil.Sub(s.world.wallNow()); {
		case !before.Resources.Allows(s.world.events.resource(id)):
			want = []webhooks.Reason{webhooks.ReasonFiltered}
		case !before.Active:
			want = []webhooks.Reason{webhooks.ReasonOff}
		case left.Abs() < 15*time.Second: // it may have ended during the call
			continue
		case left > 0:
			want = []webhooks.Reason{webhooks.ReasonPaused}
		}
		if !slices.Contains(want, x.Reason) {
			s.world.breach("an explanation is right", []string{id, k.name}, "%s is pending for %s: got %s, %q, want one of %q", id, k.name, x.Reason, x, want)
		}
		explained.add(x.Reason, false)
	}
}
