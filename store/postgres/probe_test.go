package postgres_test

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// Only the shard's owner knows of a pause after failures. Even so, a redelivery, a test event, or
// turning the webhook on ends the pause at once if it is requested on another node.
func TestPause_RequestOnAnyNode_EndsIt(t *testing.T) {
	for name, press := range map[string]func(service *webhooks.WebhookService, webhook driver.Webhook, event string) error{
		"redelivery": func(service *webhooks.WebhookService, webhook driver.Webhook, event string) error {
			return service.Redeliver(t.Context(), webhook.Account, webhook.ID, event)
		},
		"test event": func(service *webhooks.WebhookService, webhook driver.Webhook, _ string) error {
			_, err := service.SendTest(t.Context(), webhook.Account, webhook.ID)
			return err
		},
		"on again": func(service *webhooks.WebhookService, webhook driver.Webhook, _ string) error {
			active := true
			_, err := service.Update(t.Context(), webhook.Account, webhook.ID, webhooks.UpdateParams{Active: &active})
			return err
		},
	} {
		for _, runs := range []bool{false, true} {
			t.Run(map[bool]string{false: name, true: name + ", at a node that runs"}[runs], func(t *testing.T) {
				t.Parallel()
				anyNodeEndsThePause(t, runs, func(service *webhooks.WebhookService, webhook driver.Webhook, event string) error {
					return press(service, webhook, event)
				})
			})
		}
	}
}

func anyNodeEndsThePause(t *testing.T, runs bool, press func(*webhooks.WebhookService, driver.Webhook, string) error) {
	var repaired atomic.Bool
	arrived := make(chan string, 1000)
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !repaired.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		arrived <- r.Header.Get("Webhook-Id")
	}))
	defer receiver.Close()
	roots := x509.NewCertPool()
	roots.AddCert(receiver.Certificate())
	option := inSchema(t)
	p, err := pgxpool.NewWithConfig(t.Context(), pool(t).Config()) // separate, since a running node keeps a connection
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	node := func(runs bool) *webhooks.WebhookService {
		service, err := webhooks.New(openOn(t, p, option), webhooks.Config{
			Events:   alerts.Events(),
			Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots, DrainTimeout: -1}, Logger: slog.New(slog.DiscardHandler),
			Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Hour}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if runs {
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = service.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
		}
		return service
	}
	first := node(true)
	webhook, err := first.Create(t.Context(), "acct", webhooks.CreateParams{URL: receiver.URL, Events: []driver.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for range 40 {
		last = first.NewEventID()
		if err := first.Publish(t.Context(), lowBalance("acct", last)); err != nil {
			t.Fatal(err)
		}
	}
	failures := func() int {
		stats, err := first.WebhookStats(t.Context(), "acct", webhook.ID)
		if err != nil {
			t.Fatal(err)
		}
		return stats.LimiterState.Failures
	}
	for end := time.Now().Add(30 * time.Second); failures() < 8; time.Sleep(5 * time.Millisecond) { // a pause of 8 s begins
		if time.Now().After(end) {
			t.Fatalf("%d failures", failures())
		}
	}
	second := node(runs)
	if !runs {
		ours, err := first.Explain(t.Context(), "acct", last, webhook.ID)
		theirs, err2 := second.Explain(t.Context(), "acct", last, webhook.ID)
		if err != nil || err2 != nil || ours.Reason != webhooks.ReasonCircuitOpen || ours.Elsewhere || theirs.Reason != webhooks.ReasonWaiting || !theirs.Elsewhere {
			t.Errorf("the owner explains %+v, %v; the other node %+v, %v", ours, err, theirs, err2)
		}
	}
	repaired.Store(true)
	begun := time.Now()
	if err := press(second, webhook, last); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case id := <-arrived:
			if _, err := second.EventDeliveries(t.Context(), "acct", id); err != nil {
				continue // the test event
			}
			if took := time.Since(begun); took > 5*time.Second { // about 50 ms on an idle machine; without a probe, the rest of the 8 s
				t.Errorf("the first event came after %v", took)
			}
			return
		case <-time.After(20 * time.Second):
			t.Fatal("nothing came")
		}
	}
}
