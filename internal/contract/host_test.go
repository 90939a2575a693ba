package contract

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

const account = "acct_1"

// A host is the service with a file as its store, and a receiver for its webhooks.
type host struct {
	testing.TB
	*document
	api      *storageapi.Handler
	url      string
	admin    string // a key with all scopes
	receiver *receiver
	seen     *seen
}

// seen records which statuses the responses had.
type seen struct {
	mu       sync.Mutex
	statuses map[string]map[int]bool // by operation ID
}

func (s *seen) add(op string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses[op] == nil {
		s.statuses[op] = make(map[int]bool)
	}
	s.statuses[op][status] = true
}

// newHost starts a host that makes one attempt per delivery. Rate limits are enabled but too high
// to be reached, so that responses carry the rate-limit headers.
func newHost(t testing.TB, d *document, change func(*storageapi.Config)) *host {
	t.Helper()
	h := &host{TB: t, document: d, receiver: newReceiver(t, d), seen: &seen{statuses: make(map[string]map[int]bool)}}
	config := storageapi.Config{
		Path:      filepath.Join(t.TempDir(), "storage.db"),
		Logger:    slog.New(slog.DiscardHandler),
		RateLimit: auth.RateLimit{PerSecond: 1e6},
		Webhooks: webhooks.Config{
			Outbound: webhooks.Outbound{
				AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
				RootCAs:       h.receiver.roots,
			},
			Retry: webhooks.RetryPolicy{Delays: []time.Duration{}},
		},
	}
	if d.configure != nil {
		d.configure(&config)
	}
	if change != nil {
		change(&config)
	}
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	h.api = api
	server := httptest.NewUnstartedServer(api)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	h.url = server.URL
	ran := make(chan error, 1)
	go func() { ran <- api.Run(context.Background()) }()
	t.Cleanup(func() {
		server.Close()
		if err := api.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ran; err != nil && !errors.Is(err, storageapi.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
	})
	_, h.admin = h.key("admin", api.Keys.Scopes().All())
	return h
}

// key creates a key in Go and returns its ID and value.
func (h *host) key(name string, set scopes.Set) (id, value string) {
	h.Helper()
	key, token, err := h.api.Keys.Create(h.Context(), account, apikeys.CreateParams{Name: name, Scopes: set})
	if err != nil {
		h.Fatal(err)
	}
	return key.ID, token.Reveal()
}

// publish publishes an event and returns its ID.
func (h *host) publish(data webhooks.Data) string {
	h.Helper()
	event := webhooks.Event{ID: h.api.Webhooks.NewEventID(), Account: account, Data: data}
	if err := h.api.Webhooks.Publish(h.Context(), event); err != nil {
		h.Fatal(err)
	}
	return event.ID
}

// A receiver receives events and checks that each of them matches the document. The start of the
// request's path determines the response.
type receiver struct {
	testing.TB
	*document
	url   string
	roots *x509.CertPool

	mu       sync.Mutex
	types    map[string]int // number of received events by type
	hang     chan struct{}  // closed to release hanging requests
	hangings int
}

func newReceiver(t testing.TB, d *document) *receiver {
	r := &receiver{TB: t, document: d, types: make(map[string]int), hang: make(chan struct{})}
	server := httptest.NewUnstartedServer(r)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	r.url = server.URL
	r.roots = x509.NewCertPool()
	r.roots.AddCert(server.Certificate())
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	eventType, err := r.checkEvent(request)
	if err != nil {
		r.Errorf("an event arrived that is not as documented: %v", err)
	}
	r.mu.Lock()
	r.types[eventType]++
	r.mu.Unlock()
	switch {
	case strings.HasPrefix(request.URL.Path, "/fails"):
		http.Error(w, "not today", http.StatusServiceUnavailable)
	case strings.HasPrefix(request.URL.Path, "/gone"):
		w.WriteHeader(http.StatusGone)
	case strings.HasPrefix(request.URL.Path, "/breaks"):
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(request.URL.Path, "/hangs"):
		r.mu.Lock()
		r.hangings++
		r.mu.Unlock()
		<-r.hang
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// received returns how many events of this type the receiver has received.
func (r *receiver) received(eventType string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.types[eventType]
}

// hanging returns how many requests the receiver has left hanging so far.
func (r *receiver) hanging() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hangings
}

// release lets all hanging requests end.
func (r *receiver) release() { close(r.hang) }

// eventually waits until done returns true.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
