package storetest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// longHistory tests ListDeliveries with more deliveries than fit on a page or in one record of a
// store's index.
func longHistory(run runner) {
	run("lists thousands of events, with purges in between", func(t *tester) {
		h := newHistory(t)
		h.publish("first", 1500)
		h.check(31)
		h.housekeep()
		h.settle(900)
		h.check(250)
		t.createWebhooks(h.webhook("late"))
		border := t.border()
		h.publish("second", 1500)
		h.housekeep()
		h.settle(1200)
		h.check(64)
		h.housekeep()
		h.check(13, 100_000)

		// The lists must omit purged deliveries and keep all others.
		t.purge(driver.Purge{Payloads: border, Attempts: border})
		h.forget("first")
		h.check(999)
		h.publish("third", 200)
		h.housekeep()
		h.check(50)
	})
}

// A history publishes the events of an account and checks the lists of their deliveries. The
// webhooks subscribe to different event types.
type history struct {
	*tester
	webhooks []driver.Webhook
	counts   map[string]map[string]int // number of deliveries by webhook and phase
	old      time.Time                 // a time before all events
}

const historyWriters = 16

// newHistory creates the account's webhooks, including an inactive one.
func newHistory(t *tester) *history {
	t.Helper()
	h := &history{tester: t, counts: map[string]map[string]int{}, old: t.border().AddDate(0, 0, -7)}
	t.createWebhooks(h.webhook("all"), h.webhook("half"), h.webhook("rare"), h.webhook("off"))
	t.setActive("acct", "off", false)
	t.createWebhooks(newWebhook("other", "foreign"))
	return h
}

func (h *history) webhook(id string) driver.Webhook {
	w := newWebhook("acct", id)
	switch id {
	case "half":
		w.Events = []driver.EventType{thirdType, otherType}
	case "rare":
		w.Events = []driver.EventType{otherType}
	default:
		w.Events = []driver.EventType{eventType, otherType, thirdType, fourthType}
	}
	h.webhooks = append(h.webhooks, w)
	h.counts[id] = map[string]int{}
	return w
}

// publish stores n events, and a few events of another account, with concurrent writers. Each
// writer stores its events in the order of their IDs.
func (h *history) publish(phase string, n int) {
	h.Helper()
	typeOf := func(i int) driver.EventType {
		switch {
		case i%100 == 50:
			return otherType
		case i%2 == 1:
			return thirdType
		}
		return eventType
	}
	for i := range n {
		for _, w := range h.webhooks {
			if slices.Contains(w.Events, typeOf(i)) {
				h.counts[w.ID][phase]++
			}
		}
	}
	inParallel(historyWriters, func(writer int) {
		for i := writer; i < n; i += historyWriters {
			event := newEvent("acct", numbered(phase, i))
			event.Type = typeOf(i)
			_, err := h.store.Enqueue(h.Context(), event)
			h.wantError("Enqueue", err, nil)
			if i%10 == 0 {
				_, err := h.store.Enqueue(h.Context(), newEvent("other", numbered(phase, i)))
				h.wantError("Enqueue", err, nil)
			}
		}
	})
}

// settle claims n deliveries, and settles them in turn as Delivered, as Dead, and not at all.
func (h *history) settle(n int) {
	h.Helper()
	var settlements []Settlement
	for i, task := range h.claim(n) {
		settlements = append(settlements, settlement(task, []driver.Effect{driver.Deliver, driver.GiveUp, Postpone}[i%3]))
	}
	wantSame(h.tester, "number of tasks", len(settlements), n)
	h.tester.settle(settlements...)
}

// housekeep runs a purge that has nothing to remove, so that a store can do other maintenance.
func (h *history) housekeep() {
	h.Helper()
	h.purge(driver.Purge{Payloads: h.old, Attempts: h.old, EventIDs: h.old, Limit: 100})
}

// forget removes a phase from the expected deliveries.
func (h *history) forget(phase string) {
	for _, phases := range h.counts {
		delete(phases, phase)
	}
}

// check lists the deliveries of all webhooks in pages of each of the given sizes, and compares the
// lists with each other and with the published events.
func (h *history) check(limits ...int) {
	h.Helper()
	all := h.list("acct", "all", driver.DeliveryQuery{})
	h.checkOrder(all)
	for _, w := range h.webhooks {
		full := h.list("acct", w.ID, driver.DeliveryQuery{})
		want := 0
		for _, n := range h.counts[w.ID] {
			want += n
		}
		var expected []string // in the order of the list of the webhook that gets all events
		for _, d := range all[:min(len(all), h.since(w.ID))] {
			if slices.Contains(w.Events, d.Type) {
				expected = append(expected, d.EventID)
			}
		}
		wantSame(h.tester, "number of deliveries of "+w.ID, len(full), want)
		if got := eventIDs(full); !slices.Equal(got, expected) {
			wantSame(h.tester, "events of "+w.ID, got, expected)
		}
		for _, limit := range limits {
			h.wantList("pages of "+w.ID, h.list("acct", w.ID, driver.DeliveryQuery{Limit: limit}), full)
			for _, query := range []driver.DeliveryQuery{
				{States: []driver.DeliveryState{driver.Dead}}, {States: []driver.DeliveryState{driver.Skipped, driver.Delivered}}, {Failed: true},
			} {
				query.Limit = limit
				var some []driver.Delivery
				for i := range full {
					if query.Matches(&full[i]) {
						some = append(some, full[i])
					}
				}
				h.wantList("pages of "+w.ID+" with a filter", h.list("acct", w.ID, query), some)
			}
		}
	}
}

// wantList works like wantSame, but is fast for long lists that are equal.
func (h *history) wantList(what string, got, want []driver.Delivery) {
	h.Helper()
	if !slices.EqualFunc(got, want, func(a, b driver.Delivery) bool {
		return a.EventID == b.EventID && a.WebhookID == b.WebhookID && a.Type == b.Type && a.State == b.State &&
			a.PublishedAt.Equal(b.PublishedAt) && a.NextAttemptAt.Equal(b.NextAttemptAt) && len(a.Attempts) == len(b.Attempts)
	}) {
		wantSame(h.tester, what, got, want)
	}
}

// since returns the number of events that were published after the webhook was created. They are at
// the head of the list of all events.
func (h *history) since(id string) int {
	n := 0
	for phase := range h.counts[id] {
		n += h.counts["all"][phase]
	}
	return n
}

// checkOrder checks that a list has the order in which its events were stored. The test knows this
// order only between events of the same writer and between phases.
func (h *history) checkOrder(list []driver.Delivery) {
	h.Helper()
	phases := []string{"third", "second", "first"}
	last := map[string]string{} // last ID by writer and phase
	for i, d := range list {
		if i > 0 && d.PublishedAt.After(list[i-1].PublishedAt) {
			h.Errorf("%s published at %v, later than the event listed before it, at %v", d.EventID, d.PublishedAt, list[i-1].PublishedAt)
		}
		phase, digits, _ := strings.Cut(d.EventID, "_")
		number, err := strconv.Atoi(digits)
		h.must(err)
		for len(phases) > 0 && phases[0] != phase {
			phases = phases[1:]
		}
		writer := numbered(phase, number%historyWriters)
		if before, ok := last[writer]; len(phases) == 0 || ok && d.EventID >= before {
			h.Errorf("%s listed after %s although it was stored later", d.EventID, before)
		}
		last[writer] = d.EventID
	}
}
