package webhooks_test

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/webhooks"
)

// When the context of Run is done, running attempts finish, and no new attempts begin.
func TestDraining(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1, Total: 2}}, sleeping(10*time.Second), func(b *bubble) {
		b.subscribe("a")
		underWay, waiting := b.publish(), b.publish()
		stop := b.start()
		time.Sleep(2 * time.Second)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took != 8*time.Second {
			t.Errorf("draining took %v, want 8 s", took)
		}
		b.wantState(underWay, webhooks.Delivered, 1)
		b.wantState(waiting, webhooks.Pending, 0)
		late := b.publish()
		time.Sleep(time.Hour)
		b.wantState(late, webhooks.Pending, 0)
		if n := len(b.hits.of("a")); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// Attempts that have not finished after DrainTimeout are canceled, and their deliveries return to
// the store. A canceled attempt does not count, and the next Run repeats it at once.
func TestDrainTimeout(t *testing.T) {
	for name, test := range map[string]struct{ config, want time.Duration }{
		"two seconds": {2 * time.Second, 2 * time.Second}, "none": {-1, 0}, "as long as the attempt": {0, 14 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			config := webhooks.Config{Outbound: webhooks.Outbound{DrainTimeout: test.config}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Hour}}}
			inBubble(t, config, sleeping(20*time.Second), func(b *bubble) {
				b.subscribe("a")
				event := b.publish()
				stop := b.start()
				time.Sleep(time.Second)
				begun := time.Now()
				stop()
				if took := time.Since(begun); took != test.want {
					t.Errorf("Run returned after %v, want %v", took, test.want)
				}
				if test.config == 0 { // the attempt timed out first
					b.wantState(event, webhooks.Pending, 1)
					return
				}
				b.wantState(event, webhooks.Pending, 0)
				if got := b.delivery(event).NextAttemptAt; got.After(time.Now()) {
					t.Errorf("it is due at %v", got)
				}
				b.start()
				time.Sleep(16 * time.Second)
				synctest.Wait()
				b.wantState(event, webhooks.Pending, 1)
				if n := len(b.hits.of("a")); n != 2 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// Once Delete has returned, nothing is sent to the webhook: running attempts are canceled, and
// pending deliveries are deleted.
func TestDelete_AttemptInFlight_IsCanceled(t *testing.T) {
	underWay := newGauge()
	handler := func(w http.ResponseWriter, r *http.Request) {
		defer underWay.enter(r.Host)()
		sleeping(10*time.Second)(w, r)
	}
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 3}}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.subscribe("b")
		var events []string
		for range 20 {
			events = append(events, b.publish())
		}
		b.start()
		time.Sleep(time.Second)
		begun := time.Now()
		if err := b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("Delete took %v", took)
		}
		synctest.Wait()
		if a, b := underWay.current("a.example.com"), underWay.current("b.example.com"); a != 0 || b != 2 {
			t.Errorf("%d requests to the deleted webhook are under way, and %d to the other", a, b)
		}
		b.publish()
		time.Sleep(time.Hour)
		if n := len(b.hits.of("a")); n != 2 {
			t.Errorf("the deleted webhook got %d requests, want the 2 that were under way", n)
		}
		if n := len(b.hits.of("b")); n != 21 {
			t.Errorf("the other got %d requests, want 21", n)
		}
		for _, event := range events {
			if list := deliveries(b, b.service, event); len(list) != 1 || list[0].WebhookID == webhook.ID {
				t.Errorf("the event's deliveries are %+v", list)
			}
		}
	})
}

// Nothing is sent after Delete, regardless of the order of events, claims and Delete.
func TestDeleteUnderLoad(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 3}}, sleeping(3*time.Millisecond), func(b *bubble) {
		b.start()
		for i := range 15 {
			webhook := b.subscribe("a")
			for range 10 {
				b.publish()
			}
			time.Sleep(time.Duration(i) * time.Millisecond / 3)
			if err := b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // waits for requests that were sent earlier
			before := len(b.hits.of("a"))
			time.Sleep(time.Minute)
			if after := len(b.hits.of("a")); after != before {
				t.Fatalf("round %d: %d requests after Delete", i, after-before)
			}
		}
	})
}

// Delete does not wait for a dial that hangs.
func TestDelete_DialHangs_DoesNotWait(t *testing.T) {
	inBubble(t, webhooks.Config{}, nil, func(b *bubble) {
		b.service.DialThrough(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		webhook := b.subscribe("a")
		b.publish()
		b.start()
		time.Sleep(time.Second)
		begun := time.Now()
		if err := b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil || time.Since(begun) != 0 {
			t.Errorf("Delete returned %v after %v", err, time.Since(begun))
		}
	})
}

// Run leaves no goroutine and no connection behind.
func TestRunLeavesNothingBehind(t *testing.T) {
	hanging, quick := newTCPReceiver(t, hang), newReceiver(t, status(http.StatusOK))
	before := runtime.NumGoroutine()
	config, store := reaching(&testlog.Book{}), newLedger()
	config.Outbound.DrainTimeout = -1
	service := newService(t, store, config)
	subscribe(t, service, quick.url("hooks.example.com"))
	subscribe(t, service, hanging.url("hooks.example.com"))
	for range 3 {
		stop := start(t, service)
		for range 5 {
			publish(t, service)
		}
		store.next(t)
		stop()
	}
	limit := time.After(time.Minute)
	for runtime.NumGoroutine() > before {
		select {
		case <-limit:
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		default:
			runtime.Gosched()
		}
	}
}
