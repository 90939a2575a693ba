package httpapi_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// A receiver is an HTTPS server that passes each request to received and responds with the result
// of status.
type receiver struct {
	*httptest.Server
	received chan *http.Request // with their bodies in memory
	status   func() int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{received: make(chan *http.Request, 100), status: func() int { return 200 }}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			t.Errorf("receive: %v", err)
		}
		request.Body = io.NopCloser(strings.NewReader(string(body)))
		status := r.status()
		r.received <- request
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// config allows webhooks to this receiver, but to no other non-public address.
func (r *receiver) config() webhooks.Config {
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, RootCAs: roots}}
}

var eventsOfAllTypes = []webhooks.Data{
	alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: "file_1", ExpiresAt: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)}}},
	alerts.BalanceLow{Balance: 1, Threshold: 2},
	alerts.BandwidthLimitApproaching{UsedBytes: 8, LimitBytes: 10, Period: "2026-01"},
	alerts.BandwidthLimitReached{UsedBytes: 10, LimitBytes: 10, Period: "2026-01"},
	alerts.TransactionsLimitApproaching{Used: 8, Limit: 10, Period: "2026-01"},
	alerts.TransactionsLimitReached{Used: 10, Limit: 10, Period: "2026-01"},
}

// TestDelivery covers the whole path: a webhook is created over HTTP, events are published in Go
// and stored in a file, and an HTTPS receiver verifies each event.
func TestDelivery(t *testing.T) {
	r := newReceiver(t)
	path := filepath.Join(t.TempDir(), "storage.db")
	config := storageapi.Config{Path: path, Webhooks: r.config()}
	h := serve(t, config)
	_, token := h.key(alice, scopes.AccountRead, scopes.FilesRead)
	var types []string
	for _, data := range eventsOfAllTypes {
		types = append(types, fmt.Sprintf("%q", data.EventType()))
	}
	made := h.do("POST", webhooksPath, token, fmt.Sprintf(`{"url":"%s/hook","events":[%s]}`, r.URL, strings.Join(types, ","))).want(201, "")
	secret, err := signing.ParseSecret(made.text("secret"))
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{secret}})
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- h.api.Run(t.Context()) }()
	publish := func(api *storageapi.Handler, id, account string, data webhooks.Data) {
		t.Helper()
		if err := api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: account, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	got, want := map[string]string{}, map[string]string{}
	for i, data := range eventsOfAllTypes {
		id := fmt.Sprintf("evt_%d", i)
		publish(h.api, id, bob, data) // alice's webhook must not receive it
		publish(h.api, id, alice, data)
		want[id] = string(data.EventType())
	}
	for range eventsOfAllTypes {
		request := <-r.received
		body, _ := io.ReadAll(request.Body)
		if err := verifier.Verify(request.Header, body); err != nil {
			t.Errorf("verify: %v", err)
		}
		if one := request.Header.Get("X-Service-Signature"); one != signing.Signature(secret, body) {
			t.Errorf("X-Service-Signature: got %q", one)
		}
		event := reply{TB: t, body: string(body)}
		got[event.text("id")] = event.text("type")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}

	// Attempts in flight during Close must finish and be recorded.
	r.status = func() int {
		go func() { _ = h.api.Close() }()
		return 200
	}
	publish(h.api, "evt_last", alice, eventsOfAllTypes[0])
	<-r.received
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := h.api.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	again := serve(t, config)
	deliveries, err := again.api.Webhooks.EventDeliveries(t.Context(), alice, "evt_last")
	if err != nil || len(deliveries) != 1 || deliveries[0].State != webhooks.Delivered {
		t.Errorf("got %+v, error %v, want one delivered", deliveries, err)
	}

	// A deleted webhook must receive nothing.
	again.do("DELETE", webhooksPath+"/"+made.text("id"), token, "").want(204, "")
	publish(again.api, "evt_none", alice, eventsOfAllTypes[0])
	if deliveries, err := again.api.Webhooks.EventDeliveries(t.Context(), alice, "evt_none"); err != nil || len(deliveries) != 0 {
		t.Errorf("got %+v, error %v, want none", deliveries, err)
	}
}
