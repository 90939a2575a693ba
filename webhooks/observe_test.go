package webhooks_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// The service reports each step of an event: published, claimed, attempted, recorded.
func TestObserver_ReportsEachStep(t *testing.T) {
	var mu sync.Mutex
	var published []observe.Publication
	var claimed, settled, attempted int
	var actions []audit.Action
	note := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
	type key struct{}
	config := webhooks.Config{Observe: observe.Observer{
		Published: func(ctx context.Context, p observe.Publication) {
			if ctx.Value(key{}) != "publisher's" {
				t.Error("another context")
			}
			note(func() { published = append(published, p) })
		},
		Claimed:   func(c observe.Claim) { note(func() { claimed += c.Claimed }) },
		Attempted: func(observe.Attempt) { note(func() { attempted++ }) },
		Settled:   func(s observe.Settlement) { note(func() { settled += s.Size }) },
		Changed:   func(n audit.Entry) { note(func() { actions = append(actions, n.Action) }) },
	}}
	inBubble(t, config, status(http.StatusOK), func(b *bubble) {
		ctx := context.WithValue(b.Context(), key{}, "publisher's")
		webhook := must(b.service.Create(b.Context(), account, webhooks.CreateParams{
			URL: "https://a.example.com" + secretPath, Events: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeBandwidthLimitApproaching, alerts.TypeBandwidthLimitReached},
		}))
		stop := b.start()
		noError(t, b.service.Publish(ctx, webhooks.Event{ID: "evt_1", Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
		noError(t, b.reports().ReportBandwidth(ctx, account, 1, 100, "p1")) // causes no event
		noError(t, b.reports().ReportBandwidth(ctx, account, 100, 100, "p1"))
		time.Sleep(time.Minute)
		noError(t, b.service.Redeliver(ctx, account, webhook.ID, "evt_1"))
		time.Sleep(time.Minute)
		noError(t, b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}))
		stop()
		synctest.Wait()
	})
	type event struct {
		Type       string
		Deliveries int
	}
	var got []event
	for _, p := range published {
		if p.Account != account || p.Err != nil {
			t.Errorf("got %+v", p)
		}
		for _, e := range p.Events {
			if e.ID == "" || e.Bytes == 0 {
				t.Errorf("got %+v", e)
			}
			got = append(got, event{e.Type, p.Deliveries})
		}
	}
	want := []event{{"balance.low", 1}, {"bandwidth.limit_approaching", 2}, {"bandwidth.limit_reached", 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	if claimed != 4 || attempted != 4 || settled != 4 {
		t.Errorf("claimed %d, attempted %d, recorded %d; want 4", claimed, attempted, settled)
	}
	if diff := cmp.Diff([]audit.Action{audit.WebhookCreated, audit.DeliveryRedelivered, audit.WebhookDeleted}, actions); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

// A slow Observer delays no delivery.
func TestObserver_Slow_DelaysNoDelivery(t *testing.T) {
	observer := observe.Observer{
		Claimed:   func(observe.Claim) { time.Sleep(time.Hour) },
		Attempted: func(observe.Attempt) { time.Sleep(time.Hour) },
		Settled:   func(observe.Settlement) { time.Sleep(time.Hour) },
		Changed:   func(audit.Entry) { time.Sleep(time.Hour) },
	}
	inBubble(t, webhooks.Config{Observe: observer}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		stop := b.start()
		for range 100 {
			event := b.publish()
			time.Sleep(time.Second)
			b.wantState(event, webhooks.Delivered, 1)
		}
		stop()
		time.Sleep(time.Hour) // lets the running call return
	})
}

// Results that are recorded at the end of a drain that took too long are still reported.
func TestObserver_LongDrain_ReportsLateResults(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		const events = 3
		var attempted atomic.Int64
		store := &slowSettler{WebhookStore: memory.New(), until: make(chan struct{})}
		b := &bubble{T: t, logs: &testlog.Book{}}
		b.dial = b.serve(status(http.StatusOK))
		b.service = b.newService(store, webhooks.Config{Outbound: webhooks.Outbound{DrainTimeout: time.Second}, Observe: observe.Observer{Attempted: func(observe.Attempt) {
			time.Sleep(100 * time.Millisecond)
			attempted.Add(1)
		}}})
		b.subscribe("a")
		for range events {
			b.publish()
		}
		stop := b.start()
		time.Sleep(time.Second)
		time.AfterFunc(5*time.Second, func() { close(store.until) })
		stop()
		if n := attempted.Load(); n != events {
			t.Errorf("told of %d attempts, want %d", n, events)
		}
	})
}
