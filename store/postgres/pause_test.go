package postgres_test

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhook is paused, and the node that delivers its events stops. The node that takes over sends
// nothing to the webhook until the pause ends, and then sends the waiting events.
func TestPausedWebhook_NodeStops_OtherNodeKeepsThePause(t *testing.T) {
	t.Parallel()
	arrived := map[string]chan time.Time{"/paused": make(chan time.Time, 10), "/other": make(chan time.Time, 10)}
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived[r.URL.Path] <- time.Now() }))
	defer receiver.Close()
	roots := x509.NewCertPool()
	roots.AddCert(receiver.Certificate())
	option := inSchema(t)
	p, err := pgxpool.NewWithConfig(t.Context(), pool(t).Config()) // separate, since a running node keeps a connection
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	node := func() (service *webhooks.WebhookService, stop func()) {
		service, err := webhooks.New(openOn(t, p, option), webhooks.Config{
			Events: alerts.Events(), Logger: slog.New(slog.DiscardHandler),
			Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots, DrainTimeout: -1},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = service.Run(ctx) }()
		return service, func() { cancel(); <-done }
	}
	arrival := func(path string) time.Time {
		t.Helper()
		select {
		case at := <-arrived[path]:
			return at
		case <-time.After(30 * time.Second):
			t.Fatalf("no event came to %s", path)
			return time.Time{}
		}
	}
	publish := func(service *webhooks.WebhookService) {
		t.Helper()
		if err := service.Publish(t.Context(), lowBalance("acct", service.NewEventID())); err != nil {
			t.Fatal(err)
		}
	}

	first, stop := node()
	var paused webhooks.Webhook
	for path := range arrived {
		webhook, err := first.Create(t.Context(), "acct", webhooks.CreateParams{URL: receiver.URL + path, Events: []driver.EventType{alerts.TypeBalanceLow}})
		if err != nil {
			t.Fatal(err)
		}
		if path == "/paused" {
			paused = webhook
		}
	}
	end := time.Now().Add(8 * time.Second).Truncate(time.Millisecond)
	if _, err := first.Update(t.Context(), "acct", paused.ID, webhooks.UpdateParams{PausedUntil: &end}); err != nil {
		t.Fatal(err)
	}
	publish(first)
	arrival("/other") // the first node delivers
	second, stopSecond := node()
	defer stopSecond()
	stop()
	publish(second)
	takenOver := arrival("/other")
	for range 2 {
		at := arrival("/paused")
		if at.Before(end) {
			t.Errorf("an event came %v before the end of the pause", end.Sub(at))
		}
		if takenOver.Before(end) && at.Sub(end) > 5*time.Second { // at once on an idle machine
			t.Errorf("an event came %v after the end of the pause", at.Sub(end))
		}
	}
	t.Logf("the second node delivered %v before the end of the pause", end.Sub(takenOver))
}
