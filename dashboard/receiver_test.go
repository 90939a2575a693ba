package dashboard_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// A receiver is an HTTPS server that receives events and gives the configured response.
type receiver struct {
	*httptest.Server
	status atomic.Int64
	body   atomic.Value
	header atomic.Value // the header of the latest request
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{}
	r.answer(http.StatusOK, "thank you")
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.header.Store(request.Header.Clone())
		w.WriteHeader(int(r.status.Load()))
		_, _ = w.Write([]byte(r.body.Load().(string)))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int, body string) {
	r.body.Store(body)
	r.status.Store(int64(status))
}

// config allows webhooks to this receiver and one attempt per delivery.
func (r *receiver) config() webhooks.Config {
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return webhooks.Config{Outbound: webhooks.Outbound{RootCAs: roots, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}
}

// newDelivering returns a site that delivers to the receiver, and a webhook with the receiver's
// URL.
func newDelivering(t *testing.T, r *receiver) (*site, webhooks.Webhook) {
	t.Helper()
	s := newSite(t, storageapi.Config{Webhooks: r.config()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.api.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	webhook, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: r.URL + "/hooks", Events: alerts.EventTypes(), Threshold: 12_500_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return s, webhook
}

// publish publishes an event and waits until its delivery is settled.
func (s *site) publish(webhook, event string) {
	s.Helper()
	if err := s.api.Webhooks.Publish(s.Context(), webhooks.Event{ID: event, Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		s.Fatal(err)
	}
	s.settled(webhook, event)
}

// settled waits until a delivery is no longer pending, and returns it.
func (s *site) settled(webhook, event string) webhooks.Delivery {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		delivery, err := s.api.Webhooks.Delivery(s.Context(), alice, webhook, event)
		if err != nil {
			s.Fatal(err)
		}
		if delivery.State != webhooks.Pending {
			return delivery
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s is still pending", event)
		}
	}
}
