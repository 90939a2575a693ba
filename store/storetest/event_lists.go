package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

func eventByID(run runner) {
	run("returns the event with its exact body", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		event := newEvent("acct", "event")
		event.Body = []byte("{\"n\": 9223372036854775807,\t\"é\":\"\u2028\"}\n")
		t.enqueue(event, 1)
		event.Body = slices.Clone(event.Body)
		got, published, err := t.store.EventByID(t.Context(), "acct", "event")
		t.must(err)
		wantSame(t, "EventByID", got, event)
		wantSame(t, "PublishedAt", published, t.deliveries("acct", "event")[0].PublishedAt)
		got.Body[0] = '<' // this must not change the stored body
		got, _, err = t.store.EventByID(t.Context(), "acct", "event")
		t.must(err)
		wantSame(t, "EventByID after the caller changed the result", got, event)
	})

	run("returns ErrNotFound for an unknown event or another account's", func(t *tester) {
		t.enqueue(newEvent("acct", "event"), 0)
		for account, id := range map[string]string{"acct": "another", "other": "event"} {
			_, _, err := t.store.EventByID(t.Context(), account, id)
			t.wantError("EventByID", err, apierr.ErrNotFound)
		}
	})

	run("returns no body after it was purged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "event"), 1, driver.Deliver)
		border := t.border()
		t.purge(driver.Purge{Payloads: border, Limit: 9})
		want := newEvent("acct", "event")
		want.Body = nil
		got, published, err := t.store.EventByID(t.Context(), "acct", "event")
		t.must(err)
		if got.Body != nil {
			t.Errorf("Body = %q, want nil", got.Body)
		}
		wantSame(t, "EventByID", got, want)
		page, err := t.store.ListEvents(t.Context(), "acct", driver.EventQuery{Limit: 9})
		t.must(err)
		if len(page.Events) != 1 || page.Events[0].HasBody {
			t.Fatalf("ListEvents = %+v, want one event without a body", page)
		}
		wantSame(t, "PublishedAt", published, page.Events[0].PublishedAt)
	})
}

// events returns the IDs of all events that the query selects. It reads them page by page.
func (t *tester) events(account string, query driver.EventQuery) (ids []string) {
	t.Helper()
	for pages := 0; ; pages++ {
		page, err := t.store.ListEvents(t.Context(), account, query)
		t.must(err)
		if len(page.Events) > query.Limit {
			t.Fatalf("page has %d events, want at most %d", len(page.Events), query.Limit)
		}
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		if page.Next == "" {
			return ids
		}
		if query.After = page.Next; pages > 1000 {
			t.Fatal("list does not end")
		}
	}
}

func listEvents(run runner) {
	run("lists the account's events in pages, newest first or oldest first", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		var want []string
		for i := range 25 {
			event := newEvent("acct", numbered("event", 100-i)) // stored by descending ID
			deliveries := 1
			if i%3 == 0 {
				event.Type, deliveries = "unheard", 0
			}
			t.enqueue(event, deliveries)
			t.enqueue(newEvent("other", event.ID), 0)
			want = append(want, event.ID)
		}
		for _, limit := range []int{1, 4, 5, 25, 26, 1000} {
			wantSame(t, "oldest first", t.events("acct", driver.EventQuery{Limit: limit, OldestFirst: true}), want)
			newest := slices.Clone(want)
			slices.Reverse(newest)
			wantSame(t, "newest first", t.events("acct", driver.EventQuery{Limit: limit}), newest)
		}
		wantSame(t, "events of an unknown account", t.events("nobody", driver.EventQuery{Limit: 9}), nil)
		page, err := t.store.ListEvents(t.Context(), "acct", driver.EventQuery{Limit: 2, OldestFirst: true})
		t.must(err)
		for i := range page.Events {
			page.Events[i].PublishedAt = time.Time{}
		}
		wantSame(t, "second event", page.Events[1], driver.StoredEvent{ID: want[1], Type: eventType, Resource: "bucket-1", Timestamp: some, HasBody: true})
	})

	run("filters by types", func(t *tester) {
		for i, of := range []driver.EventType{"a", "b", "c", "a", "c", "b", "a"} {
			event := newEvent("acct", numbered("event", i))
			event.Type = of
			t.enqueue(event, 0)
		}
		for _, test := range []struct {
			types []driver.EventType
			want  []string
		}{
			{[]driver.EventType{"a"}, []string{numbered("event", 0), numbered("event", 3), numbered("event", 6)}},
			{[]driver.EventType{"c", "b", "c"}, []string{numbered("event", 1), numbered("event", 2), numbered("event", 4), numbered("event", 5)}},
			{[]driver.EventType{"d"}, nil},
		} {
			for _, limit := range []int{1, 2, 9} {
				wantSame(t, "events", t.events("acct", driver.EventQuery{Types: test.types, Limit: limit, OldestFirst: true}), test.want)
			}
		}
	})

	run("filters by webhook", func(t *tester) {
		two := newWebhook("acct", "two")
		two.Events = []driver.EventType{eventType}
		t.createWebhooks(newWebhook("acct", "one"), two, newWebhook("other", "theirs"))
		t.settleEvent(newEvent("acct", "delivered"), 2, driver.Deliver)
		t.settleEvent(newEvent("acct", "dead"), 2, driver.GiveUp)
		only := newEvent("acct", "only-one")
		only.Type = otherType
		t.enqueue(only, 1)
		_, err := t.store.UpdateAlert(t.Context(), "acct", "series", func(step *driver.AlertStep) error {
			step.Events = []driver.AlertEvent{{EncodedEvent: newEvent("acct", "only-two"), WebhookID: "two"}}
			return nil
		})
		t.must(err)
		t.setActive("acct", "two", false)
		t.enqueue(newEvent("acct", "skipped"), 1)
		t.enqueue(newEvent("other", "theirs"), 1)
		for _, test := range []struct {
			webhook string
			types   []driver.EventType
			want    []string
		}{
			{"one", nil, []string{"delivered", "dead", "only-one", "skipped"}},
			{"two", nil, []string{"delivered", "dead", "only-two", "skipped"}},
			{"one", []driver.EventType{otherType}, []string{"only-one"}},
			{"two", []driver.EventType{otherType}, nil},
		} {
			newest := slices.Clone(test.want)
			slices.Reverse(newest)
			for _, limit := range []int{1, 2, 4, 9} {
				query := driver.EventQuery{WebhookID: test.webhook, Types: test.types, Limit: limit}
				wantSame(t, "newest first", t.events("acct", query), newest)
				query.OldestFirst = true
				wantSame(t, "oldest first", t.events("acct", query), test.want)
			}
		}
		follow := driver.EventQuery{WebhookID: "one", Limit: 9, OldestFirst: true}
		page, err := t.store.ListEvents(t.Context(), "acct", follow)
		t.must(err)
		follow.After = page.Resume
		t.enqueue(newEvent("acct", "later"), 1)
		wantSame(t, "events after Resume", t.events("acct", follow), []string{"later"})
		for account, id := range map[string]string{"acct": "theirs", "other": "one", "nobody": "one"} {
			for _, oldest := range []bool{false, true} {
				_, err := t.store.ListEvents(t.Context(), account, driver.EventQuery{WebhookID: id, Limit: 9, OldestFirst: oldest})
				t.wantError("ListEvents for a webhook that the account does not have", err, apierr.ErrNotFound)
			}
		}
	})

	run("filters by From (inclusive) and To (exclusive)", func(t *tester) {
		t.enqueue(newEvent("acct", "first"), 0)
		from := t.border()
		t.enqueue(newEvent("acct", "second"), 0)
		to := t.border()
		t.enqueue(newEvent("acct", "third"), 0)
		for _, test := range []struct {
			from, to time.Time
			want     []string
		}{
			{from, to, []string{"second"}}, {from, time.Time{}, []string{"second", "third"}},
			{time.Time{}, to, []string{"first", "second"}}, {to, from, nil},
		} {
			wantSame(t, "events", t.events("acct", driver.EventQuery{From: test.from, To: test.to, Limit: 9, OldestFirst: true}), test.want)
		}
	})

	run("a feed reader gets each event once while many publish", func(t *tester) {
		const publishers, each = 4, 60
		start := t.border()
		var group sync.WaitGroup
		for p := range publishers {
			group.Go(func() {
				for i := range each {
					e := newEvent("acct", numbered("event", 1000*((p+i)%publishers)+each-i)) // descending IDs
					e.Type = []driver.EventType{"a", "b", "c"}[i%3]
					if _, err := t.store.Enqueue(t.Context(), e); err != nil {
						t.Error(err)
					}
					_, _ = t.store.Enqueue(t.Context(), newEvent("other", e.ID))
				}
			})
		}
		ended := make(chan struct{})
		go func() { group.Wait(); close(ended) }()
		for _, query := range []driver.EventQuery{{Limit: 7}, {Limit: 100, Types: []driver.EventType{"c", "a"}}} {
			query.OldestFirst, query.From = true, start
			seen := make(map[string]int)
			for last := false; ; {
				page, err := t.store.ListEvents(t.Context(), "acct", query)
				t.must(err)
				if page.Resume == "" || page.Next != "" && page.Next != page.Resume {
					t.Fatalf("Next = %q, Resume = %q", page.Next, page.Resume)
				}
				for _, e := range page.Events {
					if seen[e.ID]++; seen[e.ID] > 1 {
						t.Errorf("%s listed twice", e.ID)
					}
				}
				if query.After = page.Resume; page.Next != "" {
					continue
				}
				if last {
					break
				}
				select {
				case <-ended:
					last = true
				default:
				}
			}
			want := publishers * each
			if query.Types != nil {
				want = want / 3 * 2
			}
			if len(seen) != want {
				t.Errorf("%d events listed, want %d", len(seen), want)
			}
		}
	})

	run("a feed reader continues after all events were purged", func(t *tester) {
		query := driver.EventQuery{OldestFirst: true, Limit: 9}
		next := func() (ids []string) {
			t.Helper()
			page, err := t.store.ListEvents(t.Context(), "acct", query)
			t.must(err)
			for _, e := range page.Events {
				ids = append(ids, e.ID)
			}
			query.After = page.Resume
			return ids
		}
		wantSame(t, "events at first", next(), nil)
		t.enqueue(newEvent("acct", "first"), 0)
		wantSame(t, "events", next(), []string{"first"})
		wantSame(t, "events", next(), nil)
		border := t.border()
		t.purge(driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 99})
		wantSame(t, "events after the purge", next(), nil)
		t.enqueue(newEvent("acct", "second"), 0)
		wantSame(t, "events", next(), []string{"second"})
		query.After = "never-given" // a position of another store, for example after a move
		wantSame(t, "events after a foreign position", next(), []string{"second"})
		query.After = "AAAAAAAAAAAAAAAAAAAAAA"
		wantSame(t, "events after a foreign position", next(), []string{"second"})
	})

	run("Resume does not reveal whether other accounts publish", func(t *tester) {
		t.enqueue(newEvent("acct", "event"), 0)
		seen := make(map[string]bool)
		for i := range 4 {
			page, err := t.store.ListEvents(t.Context(), "acct", driver.EventQuery{OldestFirst: true, Limit: 9})
			t.must(err)
			if seen[page.Resume] {
				t.Error("Resume returned the same cursor twice, which reveals that nothing was published")
			}
			if seen[page.Resume] = true; i > 1 {
				t.enqueue(newEvent("other", numbered("event", i)), 0)
			}
		}
	})

	run("an After of another list returns some valid page", func(t *tester) {
		t.enqueue(newEvent("acct", "event"), 0)
		for _, after := range []string{"-", "0", "18446744073709551615", "9223372036854775807"} {
			for _, oldest := range []bool{false, true} {
				_, err := t.store.ListEvents(t.Context(), "acct", driver.EventQuery{After: after, Limit: 9, OldestFirst: oldest})
				t.must(err)
			}
		}
	})
}
