package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// versions tests Webhook.Version, which other tests ignore when they compare webhooks.
func versions(run runner) {
	want := func(t *tester, what string, version uint64) {
		t.Helper()
		if got := t.webhook("acct", "webhook").Version; got != version {
			t.Errorf("Version = %d after %s, want %d", got, what, version)
		}
	}
	create := func(t *tester) {
		t.Helper()
		t.createWebhooks(newWebhook("acct", "webhook"))
		want(t, "its creation", 1)
	}

	run("is set by the store, and 1 at first", func(t *tester) {
		create(t)
		w := newWebhook("acct", "other")
		w.Version = 7
		t.createWebhooks(w)
		if got := t.webhook("acct", "other").Version; got != 1 {
			t.Errorf("Version after a creation with 7 = %d, want 1", got)
		}
	})

	run("counts only stored updates", func(t *tester) {
		create(t)
		changed := t.updateWebhook("acct", "webhook", func(w *driver.Webhook) { w.URL, w.Version = "changed", 99 })
		if changed.Version != 2 {
			t.Errorf("UpdateWebhook returned version %d, want 2", changed.Version)
		}
		want(t, "an update", 2)
		failed := errors.New("failed")
		_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(*driver.Webhook, *audit.Entry) error { return failed })
		t.wantError("UpdateWebhook", err, failed)
		want(t, "a failed update", 2)
	})

	run("counts changes of the health, not results", func(t *tester) {
		create(t)
		for i, version := range []uint64{2, 3, 3, 4, 4} { // three events fail, then two are delivered
			id := numbered("event", i)
			t.settleEvent(newEvent("acct", id), 1, []driver.Effect{driver.GiveUp, driver.GiveUp, driver.GiveUp, driver.Deliver, driver.Deliver}[i])
			want(t, id, version)
		}
		t.enqueue(newEvent("acct", "event"), 1)
		if got := t.claimAll(1)[0].Webhook.Version; got != 4 {
			t.Errorf("Task.Webhook has version %d, want 4", got)
		}
		list, err := t.store.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 1})
		if t.must(err); list[0].Version != 4 {
			t.Errorf("ListWebhooks has version %d, want 4", list[0].Version)
		}
	})

	run("no change is lost, and all changes have different versions", func(t *tester) {
		create(t)
		const goroutines = 8
		seen := make([]uint64, goroutines)
		inParallel(goroutines, func(i int) {
			changed, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
				w.PastEvents = append(w.PastEvents, driver.EventType(fmt.Sprint(w.Version)))
				return nil
			})
			t.wantError("UpdateWebhook", err, nil)
			seen[i] = changed.Version
		})
		slices.Sort(seen)
		wantSame(t, "versions returned by UpdateWebhook", seen, []uint64{2, 3, 4, 5, 6, 7, 8, 9})
		wantSame(t, "versions passed to change", t.webhook("acct", "webhook").PastEvents,
			[]driver.EventType{"1", "2", "3", "4", "5", "6", "7", "8"})
	})
}
