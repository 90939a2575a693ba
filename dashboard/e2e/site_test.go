package e2e

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/webhooks"
)

const account = "acct_1"

// A site is a host with the dashboard, a file as its store, and a receiver for its webhooks.
type site struct {
	*testing.T
	api      *storageapi.Handler
	url      string // address of the dashboard
	receiver *receiver
	now      atomic.Pointer[func() time.Time] // the clock of the services
}

func newSite(t *testing.T) *site {
	t.Helper()
	chromium(t) // skips the test without a browser
	s := &site{T: t, receiver: newReceiver(t)}
	s.clock(0)
	now := func() time.Time { return (*s.now.Load())() }
	roots := x509.NewCertPool()
	roots.AddCert(s.receiver.Certificate())
	api, err := storageapi.NewHandler(storageapi.Config{
		Path: filepath.Join(t.TempDir(), "storage.db"),
		Keys: apikeys.Config{Now: now},
		Webhooks: webhooks.Config{
			Outbound: webhooks.Outbound{RootCAs: roots, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: 2 * patience}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{}},
			Now: now,
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.api = api
	settings, err := dashboard.New(dashboard.Config{API: api, Account: func(r *http.Request) (string, error) { return account, nil }, Title: "Storage settings"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/settings/", settings)
	server := httptest.NewServer(mux)
	s.url = server.URL + "/settings/"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	t.Cleanup(func() {
		server.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := api.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// clock sets the clock of the services to the given duration before the actual time.
func (s *site) clock(ago time.Duration) {
	now := func() time.Time { return time.Now().Add(-ago) }
	s.now.Store(&now)
}

func (s *site) valid(token string) bool {
	_, err := s.api.Keys.Verify(s.Context(), token)
	return err == nil
}

// subscribe creates, in Go, a webhook for a path of the receiver.
func (s *site) subscribe(path string, events ...webhooks.EventType) webhooks.Webhook {
	s.Helper()
	params := webhooks.CreateParams{URL: s.receiver.URL + path, Events: events, Threshold: 12_500_000_000}
	webhook, err := s.api.Webhooks.Create(s.Context(), account, params)
	if err != nil {
		s.Fatal(err)
	}
	return webhook
}

// publish publishes events, waits until all their deliveries are settled, and returns the event
// IDs.
func (s *site) publish(data ...webhooks.Data) (ids []string) {
	s.Helper()
	for _, d := range data {
		event := webhooks.Event{ID: s.api.Webhooks.NewEventID(), Account: account, Data: d}
		if err := s.api.Webhooks.Publish(s.Context(), event); err != nil {
			s.Fatal(err)
		}
		ids = append(ids, event.ID)
	}
	for _, id := range ids {
		s.settled(id)
	}
	return ids
}

// settled waits until the event has no pending deliveries.
func (s *site) settled(event string) {
	s.Helper()
	pending := func(d webhooks.Delivery) bool { return d.State == webhooks.Pending }
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		deliveries, err := s.api.Webhooks.EventDeliveries(s.Context(), account, event)
		if err != nil {
			s.Fatal(err)
		}
		if !slices.ContainsFunc(deliveries, pending) {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s is still pending", event)
		}
	}
}

var low = alerts.BalanceLow{Balance: 9_500_000_000, Threshold: 12_500_000_000}
