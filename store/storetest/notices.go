package storetest

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

func newNotice(key string) webhooks.Notice { return webhooks.Notice{Key: key, Until: some} }

// wantNew checks which of the notices the account does not have.
func (t *tester) wantNew(want []int, notices ...webhooks.Notice) {
	t.Helper()
	fresh, err := t.store.NewNotices(t.Context(), "acct", notices)
	t.must(err)
	wantSame(t, "NewNotices", fresh, want)
}

// enqueueNotices stores notices and checks how many deliveries their event makes.
func (t *tester) enqueueNotices(event webhooks.Envelope, want int, notices ...webhooks.Notice) {
	t.Helper()
	got, err := t.store.EnqueueNotices(t.Context(), event, notices)
	t.must(err)
	if got != want {
		t.Fatalf("EnqueueNotices of %q = %d deliveries, want %d", event.ID, got, want)
	}
}

// notices tests NewNotices, EnqueueNotices, and what Purge says of them.
func notices(run runner) {
	run("NewNotices returns the indexes of those that are not there", func(t *tester) {
		t.wantNew(nil)
		t.wantNew([]int{0, 1}, newNotice("a"), newNotice("b"))
		t.enqueueNotices(newEvent("acct", "1"), 0, newNotice("b"), newNotice("d"))
		t.wantNew([]int{0, 2}, newNotice("a"), newNotice("b"), newNotice("c"), newNotice("d"))
		t.wantNew([]int{0, 1, 2}, newNotice("a"), newNotice("c"), newNotice("e"))
	})

	run("a notice is its account, Key and Until, to the millisecond", func(t *tester) {
		for _, key := range oddStrings {
			t.enqueueNotices(newEvent("acct", "of "+strconv.QuoteToASCII(key)), 0, newNotice(key))
			for _, other := range []webhooks.Notice{{Key: key, Until: some.Add(time.Millisecond)}, {Key: key, Until: some.Add(-time.Millisecond)}, {Key: key + "x", Until: some}} {
				t.wantNew([]int{0}, other)
			}
			t.wantNew(nil, newNotice(key), webhooks.Notice{Key: key, Until: some.Add(999 * time.Microsecond).In(time.FixedZone("", 3600))})
		}
		for _, account := range []string{"acc", "acct2", "other"} {
			fresh, err := t.store.NewNotices(t.Context(), account, []webhooks.Notice{newNotice("a")})
			t.must(err)
			wantSame(t, "NewNotices of another account", fresh, []int{0})
			_, err = t.store.EnqueueNotices(t.Context(), newEvent(account, "event"), []webhooks.Notice{newNotice("a")})
			t.must(err)
		}
		longest := webhooks.Notice{Key: long("key", 1024), Until: some}
		t.enqueueNotices(newEvent("acct", "long"), 0, longest)
		t.wantNew(nil, longest)
	})

	run("EnqueueNotices stores the event as Enqueue does", func(t *tester) {
		off := newWebhook("acct", "off")
		off.Active = false
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, newWebhook("other", "c"))
		t.enqueueNotices(newEvent("acct", "event"), 2, newNotice("1"), newNotice("2"))
		wantSame(t, "number of deliveries", len(t.deliveries("acct", "event")), 3)
		for _, task := range t.claimAll(2) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", "event"))
		}
	})

	run("ErrExists if one is there, and nothing is stored", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueueNotices(newEvent("acct", "1"), 1, newNotice("b"))
		_, err := t.store.EnqueueNotices(t.Context(), newEvent("acct", "2"), []webhooks.Notice{newNotice("a"), newNotice("b"), newNotice("c")})
		t.wantError("EnqueueNotices", err, webhooks.ErrExists)
		t.wantNew([]int{0, 2}, newNotice("a"), newNotice("b"), newNotice("c"))
		_, err = t.store.EventDeliveries(t.Context(), "acct", "2")
		t.wantError("EventDeliveries", err, webhooks.ErrNotFound)
		t.claimAll(1)
	})

	run("of one notice at once, one event comes", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		for round := range 10 {
			var won atomic.Int64
			inParallel(8, func(i int) {
				id := numbered(numbered("event", round), i)
				all := []webhooks.Notice{newNotice(id), newNotice(numbered("shared", round))}
				switch _, err := t.store.EnqueueNotices(t.Context(), newEvent("acct", id), all); err {
				case nil:
					won.Add(1)
				default:
					t.wantError("EnqueueNotices", err, webhooks.ErrExists)
					if fresh, err := t.store.NewNotices(t.Context(), "acct", all); len(fresh) != 1 || err != nil {
						t.Errorf("NewNotices = %v, %v, want the first to be new", fresh, err)
					}
				}
			})
			wantSame(t, "events", won.Load(), 1)
		}
		t.claimAll(10)
	})

	run("Purge removes those whose Until is before it, and no others", func(t *tester) {
		var all []webhooks.Notice
		for i := range 20 {
			all = append(all, webhooks.Notice{Key: numbered("key", i%3), Until: some.Add(time.Duration(i) * time.Minute)})
		}
		t.enqueueNotices(newEvent("acct", "event"), 0, all...)
		t.purge(webhooks.Purge{})
		t.wantNew(nil, all...)
		calls := t.purge(webhooks.Purge{Notices: all[10].Until, Limit: 3})
		if calls < 2 {
			t.Errorf("%d calls removed ten notices, three at a time", calls)
		}
		t.wantNew([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, all...)
		wantSame(t, "deliveries", t.deliveries("acct", "event"), nil)
		t.enqueueNotices(newEvent("acct", "again"), 0, all[0])
		t.purge(webhooks.Purge{Notices: some.Add(time.Hour)})
		_, err := t.store.EnqueueNotices(t.Context(), newEvent("acct", "after all"), all)
		t.must(err)
	})
}
