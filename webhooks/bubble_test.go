package webhooks_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/pipenet"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A bubble is a service and its receivers with a fake clock that jumps to the next event. Whole
// retry schedules pass in no time and are exact to the millisecond.
type bubble struct {
	*testing.T
	store   *flaky
	service *webhooks.WebhookService
	logs    *testlog.Book
	hits    hits
	dial    dialer // connects to the receivers
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// inBubble runs test in a bubble of virtual time. The handler serves every host name under
// example.com, and may sleep. Connections do not use TLS, which would take most of the run time.
func inBubble(t *testing.T, config webhooks.Config, handler http.HandlerFunc, test func(*bubble), options ...driver.Option) {
	t.Helper()
	testbubble.Run(t, func(t *testing.T) {
		b := &bubble{T: t, store: newFlaky(), logs: &testlog.Book{}}
		config.MaxPerAccount = -1
		b.dial = b.serve(handler)
		b.service = b.newService(b.store, config, options...)
		test(b)
	})
}

// newService returns a service that reaches the bubble's receivers.
func (b *bubble) newService(store driver.WebhookStore, config webhooks.Config, options ...driver.Option) *webhooks.WebhookService {
	b.Helper()
	config.Logger = b.logs.Logger()
	service := newService(b, store, config, options...)
	service.DialThrough(b.dial)
	return service
}

// reports returns an AlertService that publishes through the bubble's service.
func (b *bubble) reports() *alerts.AlertService {
	b.Helper()
	reports, err := alerts.New(b.store, b.service, alerts.Config{})
	noError(b, err)
	return reports
}

// serve starts a server for all host names and returns a dialer that reaches it.
func (b *bubble) serve(handler http.HandlerFunc) dialer {
	listener := pipenet.Listen()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			b.hits.add(hit{host: r.Host, id: r.Header.Get("Webhook-Id"), header: r.Header, at: time.Now()})
			handler(w, r)
		}),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go server.Serve(listener)
	b.Cleanup(func() { server.Close() })
	return listener.Dial
}

// start runs the service until the returned function is called or the bubble
// ends.
func (b *bubble) start() (stop func()) { return start(b, b.service) }

// subscribe creates a webhook with the given host name.
func (b *bubble) subscribe(name string) webhooks.Webhook {
	b.Helper()
	return subscribe(b, b.service, "https://"+name+".example.com"+secretPath)
}

func (b *bubble) publish() string {
	b.Helper()
	return publish(b, b.service)
}

func (b *bubble) delivery(event string) webhooks.Delivery {
	b.Helper()
	return delivery(b, b.service, event)
}

// wantState fails the test unless the event has exactly one delivery, in the given state and with
// the given number of attempts, numbered from 1.
func (b *bubble) wantState(event string, state webhooks.DeliveryState, attempts int) {
	b.Helper()
	got := b.delivery(event)
	if got.State != state || len(got.Attempts) != attempts {
		b.Errorf("the delivery is %s after %d attempts, want %s after %d: %+v", got.State, len(got.Attempts), state, attempts, got.Attempts)
	}
	for i, attempt := range got.Attempts {
		if attempt.Number != i+1 {
			b.Errorf("attempt %d has the number %d", i+1, attempt.Number)
		}
	}
}

// A hit is a request received by a receiver.
type hit struct {
	host, id string
	header   http.Header
	at       time.Time
}

type hits struct {
	mu   sync.Mutex
	list []hit
}

func (h *hits) add(one hit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, one)
}

// of returns the requests to a host name, or all requests if the name is empty.
func (h *hits) of(name string) (list []hit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.list {
		if name == "" || one.host == name+".example.com" {
			list = append(list, one)
		}
	}
	return list
}
