package storetest

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

func newDedupKey(key string) driver.DedupKey { return driver.DedupKey{Key: key, Until: some} }

// wantNew checks that UnseenKeys returns the indexes in want.
func (t *tester) wantNew(want []int, dedupKeys ...driver.DedupKey) {
	t.Helper()
	fresh, err := t.store.UnseenKeys(t.Context(), "acct", dedupKeys)
	t.must(err)
	wantSame(t, "UnseenKeys", fresh, want)
}

// enqueueOnce stores deduplication keys with an event and checks its number of deliveries.
func (t *tester) enqueueOnce(event driver.EncodedEvent, want int, dedupKeys ...driver.DedupKey) {
	t.Helper()
	got, err := t.store.EnqueueOnce(t.Context(), event, dedupKeys)
	t.must(err)
	if got != want {
		t.Fatalf("EnqueueOnce of %q = %d deliveries, want %d", event.ID, got, want)
	}
}

// dedupKeys tests UnseenKeys, EnqueueOnce, and how Purge treats deduplication keys.
func dedupKeys(run runner) {
	run("UnseenKeys returns the indexes of new keys", func(t *tester) {
		t.wantNew(nil)
		t.wantNew([]int{0, 1}, newDedupKey("a"), newDedupKey("b"))
		t.enqueueOnce(newEvent("acct", "1"), 0, newDedupKey("b"), newDedupKey("d"))
		t.wantNew([]int{0, 2}, newDedupKey("a"), newDedupKey("b"), newDedupKey("c"), newDedupKey("d"))
		t.wantNew([]int{0, 1, 2}, newDedupKey("a"), newDedupKey("c"), newDedupKey("e"))
	})

	run("a key is identified by account, Key and Until in milliseconds", func(t *tester) {
		for _, key := range oddStrings {
			t.enqueueOnce(newEvent("acct", "of "+strconv.QuoteToASCII(key)), 0, newDedupKey(key))
			for _, other := range []driver.DedupKey{{Key: key, Until: some.Add(time.Millisecond)}, {Key: key, Until: some.Add(-time.Millisecond)}, {Key: key + "x", Until: some}} {
				t.wantNew([]int{0}, other)
			}
			t.wantNew(nil, newDedupKey(key), driver.DedupKey{Key: key, Until: some.Add(999 * time.Microsecond).In(time.FixedZone("", 3600))})
		}
		for _, account := range []string{"acc", "acct2", "other"} {
			fresh, err := t.store.UnseenKeys(t.Context(), account, []driver.DedupKey{newDedupKey("a")})
			t.must(err)
			wantSame(t, "UnseenKeys of another account", fresh, []int{0})
			_, err = t.store.EnqueueOnce(t.Context(), newEvent(account, "event"), []driver.DedupKey{newDedupKey("a")})
			t.must(err)
		}
		longest := driver.DedupKey{Key: long("key", 1024), Until: some}
		t.enqueueOnce(newEvent("acct", "long"), 0, longest)
		t.wantNew(nil, longest)
	})

	run("EnqueueOnce stores the event like Enqueue", func(t *tester) {
		off := newWebhook("acct", "off")
		off.Active = false
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), off, newWebhook("other", "c"))
		t.enqueueOnce(newEvent("acct", "event"), 2, newDedupKey("1"), newDedupKey("2"))
		wantSame(t, "number of deliveries", len(t.deliveries("acct", "event")), 3)
		for _, task := range t.claimAll(2) {
			wantSame(t, "Task.Event", task.Event, newEvent("acct", "event"))
		}
	})

	run("EnqueueOnce returns ErrExists if a key exists, and stores nothing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.enqueueOnce(newEvent("acct", "1"), 1, newDedupKey("b"))
		_, err := t.store.EnqueueOnce(t.Context(), newEvent("acct", "2"), []driver.DedupKey{newDedupKey("a"), newDedupKey("b"), newDedupKey("c")})
		t.wantError("EnqueueOnce", err, apierr.ErrExists)
		t.wantNew([]int{0, 2}, newDedupKey("a"), newDedupKey("b"), newDedupKey("c"))
		_, err = t.store.EventDeliveries(t.Context(), "acct", "2")
		t.wantError("EventDeliveries", err, apierr.ErrNotFound)
		t.claimAll(1)
	})

	run("concurrent calls with the same key store one event", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		for round := range 10 {
			var won atomic.Int64
			inParallel(8, func(i int) {
				id := numbered(numbered("event", round), i)
				all := []driver.DedupKey{newDedupKey(id), newDedupKey(numbered("shared", round))}
				switch _, err := t.store.EnqueueOnce(t.Context(), newEvent("acct", id), all); err {
				case nil:
					won.Add(1)
				default:
					t.wantError("EnqueueOnce", err, apierr.ErrExists)
					if fresh, err := t.store.UnseenKeys(t.Context(), "acct", all); len(fresh) != 1 || err != nil {
						t.Errorf("UnseenKeys = %v, %v, want the first key to be new", fresh, err)
					}
				}
			})
			wantSame(t, "events", won.Load(), 1)
		}
		t.claimAll(10)
	})

	run("Purge removes only keys whose Until has passed", func(t *tester) {
		var all []driver.DedupKey
		for i := range 20 {
			all = append(all, driver.DedupKey{Key: numbered("key", i%3), Until: some.Add(time.Duration(i) * time.Minute)})
		}
		t.enqueueOnce(newEvent("acct", "event"), 0, all...)
		t.purge(driver.Purge{})
		t.wantNew(nil, all...)
		calls := t.purge(driver.Purge{DedupKeys: all[10].Until, Limit: 3})
		if calls < 2 {
			t.Errorf("%d calls removed ten keys, three at a time", calls)
		}
		t.wantNew([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, all...)
		wantSame(t, "deliveries", t.deliveries("acct", "event"), nil)
		t.enqueueOnce(newEvent("acct", "again"), 0, all[0])
		t.purge(driver.Purge{DedupKeys: some.Add(time.Hour)})
		_, err := t.store.EnqueueOnce(t.Context(), newEvent("acct", "after all"), all)
		t.must(err)
	})
}
