package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// deliver tests the start and the end of Deliver.
func deliver(run runner) {
	run = ofDeliveries(run)

	// wantAdded waits until want deliveries of the webhook are reported.
	wantAdded := func(f *feed, webhookID string, want int) {
		f.Helper()
		f.wait("pending deliveries", func(reports []Report) bool {
			seen := map[driver.DeliveryRef]bool{}
			for _, r := range reports {
				if r.Method == "Add" && r.Ref.WebhookID == webhookID {
					seen[r.Ref] = true
				}
			}
			return len(seen) == want
		})
	}

	run("reports deliveries that are pending already", func(t *tester) {
		const n = 2500 // more than one page
		off := newWebhook("acct", "off")
		held := newWebhook("acct", "held")
		held.Held = true
		t.createWebhooks(newWebhook("acct", "webhook"), off, held)
		t.enqueueMany("acct", n, 3)
		t.setActive("acct", "off", false)
		f := t.startDeliver()
		defer f.end()
		for _, id := range []string{"webhook", "off", "held"} {
			wantAdded(f, id, n)
		}
		for _, r := range f.seen() {
			wantSame(t, "method", r.Method, "Add")
			wantSame(t, "Webhook.Account", r.Webhook.Account, "acct")
		}
	})

	run("reports attempts and due times, and no settled deliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		first := t.deliver()
		want := map[string][3]int{"new": {0, 0, 0}, "retried": {1, 0, 60}, "resent": {2, 2, 0}, "settled": {}, "given up": {}}
		refs := map[string]driver.DeliveryRef{}
		for id := range want {
			refs[id] = first.only("acct", id)
		}
		first.record(result(refs["retried"], 1, driver.Retry), result(refs["resent"], 1, driver.Retry),
			result(refs["settled"], 1, driver.Deliver), result(refs["given up"], 1, driver.GiveUp))
		first.record(result(refs["resent"], 2, driver.GiveUp))
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "resent", audit.Entry{}))
		first.end()

		f := t.deliver()
		defer f.end()
		wantAdded(f, "webhook", 3)
		names := map[driver.DeliveryRef]string{}
		for id, ref := range refs {
			names[ref] = id
		}
		for _, r := range f.added(f.seen(), 3) {
			minutes := int(time.Until(r.Pending.Due).Round(time.Minute) / time.Minute)
			got := [3]int{r.Pending.Attempts, r.Pending.Before, minutes}
			wantSame(t, "Attempts, Before and minutes until Due of "+names[r.Ref], got, want[names[r.Ref]])
		}
	})

	run("reports each delivery while steps run concurrently", func(t *tester) {
		const n, goroutines, each = 300, 4, 100
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", n, 1)
		f := t.startDeliver()
		defer f.end()
		var stored atomic.Int64
		stored.Store(n)
		end := time.Now().Add(eventTimeout)
		inParallel(goroutines, func(i int) {
			// Steps must run while Deliver reads the backlog, even if Deliver begins late.
			for j := 0; j < each || len(f.seen()) == 0 && time.Now().Before(end); j++ {
				_, err := t.store.Enqueue(t.Context(), newEvent("acct", numbered(numbered("beside", i), j)))
				t.wantError("Enqueue", err, nil)
				stored.Add(1)
			}
		})
		wantAdded(f, "webhook", int(stored.Load()))
	})

	run("reports nothing after it has returned, even if steps are running", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 100, 1)
		stop := make(chan struct{})
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for j := 0; ; j++ {
					select {
					case <-stop:
						return
					default:
					}
					_, err := t.store.Enqueue(t.Context(), newEvent("acct", numbered(numbered("beside", i), j)))
					t.wantError("Enqueue", err, nil)
					_, err = t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
						w.Held = j%2 == 0
						return nil
					})
					t.wantError("UpdateWebhook", err, nil)
				}
			})
		}
		var all []*feed
		for i := range 5 {
			f := t.startDeliver()
			time.Sleep(time.Duration(i) * 2 * time.Millisecond)
			f.cancel()
			t.wantError("Deliver", <-f.returned, context.Canceled)
			f.returned <- context.Canceled
			all = append(all, f)
		}
		time.Sleep(20 * time.Millisecond)
		close(stop)
		group.Wait()
		for _, f := range all {
			f.end()
		}
	})

	run("a second Deliver waits until the first has returned, and then reports all deliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		first := t.deliver()
		second, third := t.startDeliver(), t.startDeliver()
		first.only("acct", "first")
		time.Sleep(20 * time.Millisecond)
		for _, f := range []*feed{second, third} {
			wantSame(t, "reports of a waiting Deliver", len(f.Reports()), 0)
		}
		third.end() // end the third Deliver while it waits for the first
		first.only("acct", "second")
		first.end()
		wantAdded(second, "webhook", 2)
		second.only("acct", "third")
		second.end()
		wantSame(t, "reports of a Deliver that only waited", len(third.Reports()), 0)
	})

	run("returns the error of an ended context and reports nothing", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var reports Recorder
		t.wantError("Deliver", t.store.(driver.Deliveries).Deliver(ctx, &reports), context.Canceled)
		reports.End()
		t.deliver().end() // the first Deliver has released its resources
		wantSame(t, "faults", reports.Faults(), nil)
	})

	run("Close ends a running and a waiting Deliver with ErrClosed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		f := t.deliver()
		second := t.startDeliver()
		f.only("acct", "event")
		time.Sleep(5 * time.Millisecond)
		t.must(t.store.Close())
		for _, f := range []*feed{f, second, t.startDeliver()} {
			select {
			case err := <-f.returned:
				t.wantError("Deliver", err, store.ErrClosed)
			case <-time.After(eventTimeout):
				t.Fatalf("Deliver did not return within %v after Close", eventTimeout)
			}
			wantSame(t, "faults", f.Faults(), nil)
		}
	})
}
