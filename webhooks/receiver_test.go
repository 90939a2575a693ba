package webhooks_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// secretPath is the end of every webhook URL in the tests. Its path and query must appear nowhere
// except in the request.
const secretPath = "/SENTINEL/hooks?token=SENTINEL"

// A receiver is an HTTPS server that records requests.
type receiver struct {
	address string
	conns   atomic.Int64 // accepted connections

	mu  sync.Mutex
	got []received
}

type received struct {
	*http.Request
	body []byte
}

// newReceiver starts a receiver on this machine that responds with the handler.
func newReceiver(tb testing.TB, handler http.HandlerFunc) *receiver {
	tb.Helper()
	return serveTLS(tb, &tls.Config{Certificates: []tls.Certificate{goodCertificate()}}, handler)
}

func serveTLS(tb testing.TB, config *tls.Config, handler http.HandlerFunc) *receiver {
	tb.Helper()
	r := &receiver{}
	r.serve(tb, tls.NewListener(r.listen(tb), config), handler)
	return r
}

func (r *receiver) serve(tb testing.TB, listener net.Listener, handler http.HandlerFunc) {
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			body, _ := io.ReadAll(request.Body)
			r.mu.Lock()
			r.got = append(r.got, received{request, body})
			r.mu.Unlock()
			handler(w, request)
		}),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go server.Serve(listener)
	tb.Cleanup(func() { server.Close() })
}

// newRawReceiver starts a receiver that speaks TLS, reads a request and then calls respond.
func newRawReceiver(tb testing.TB, respond func(net.Conn)) *receiver {
	tb.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{goodCertificate()}}
	return newTCPReceiver(tb, func(conn net.Conn) {
		secure := tls.Server(conn, config)
		defer secure.Close()
		request, err := readRequest(secure)
		if err == nil && strings.HasPrefix(request, "POST /SENTINEL/") {
			respond(secure)
		}
	})
}

// newTCPReceiver starts a receiver that passes plain connections to handle. Each connection is
// closed by the end of the test.
func newTCPReceiver(tb testing.TB, handle func(net.Conn)) *receiver {
	tb.Helper()
	r := &receiver{}
	listener := r.listen(tb)
	ended, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ended, func() { conn.Close() })
			wg.Go(func() {
				defer stop()
				defer conn.Close()
				handle(conn)
			})
		}
	})
	tb.Cleanup(func() {
		end()
		listener.Close()
		wg.Wait()
	})
	return r
}

// listen returns a listener that counts connections.
func (r *receiver) listen(tb testing.TB) net.Listener {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r.address = listener.Addr().String()
	return countingListener{listener, &r.conns}
}

type countingListener struct {
	net.Listener
	conns *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.conns.Add(1)
	}
	return conn, err
}

// readRequest reads the header and the body of a request with Content-Length.
func readRequest(conn net.Conn) (string, error) {
	var text []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		text = append(text, buf[:n]...)
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(string(text), "}}") { // the end of every event
			return string(text), nil
		}
	}
}

// url returns the URL of a webhook at the receiver, with the given host name.
func (r *receiver) url(host string) string {
	_, port, _ := net.SplitHostPort(r.address)
	return "https://" + net.JoinHostPort(host, port) + secretPath
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// A ledger is a store that sends every recorded result to a channel.
type ledger struct {
	driver.WebhookStore
	settled chan result
}

// A result is an attempt's result. If it disabled the webhook, off is the reason.
type result struct {
	driver.AttemptResult
	off webhooks.OffReason
}

func newLedger() *ledger { return &ledger{memory.New(), make(chan result, 10000)} }

func (l *ledger) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	settled, err := l.WebhookStore.Settle(ctx, results, health)
	for _, r := range results {
		var off webhooks.OffReason
		for _, h := range health {
			if h.WebhookID == r.WebhookID {
				off = h.Health.OffReason
			}
		}
		l.settled <- result{r, off}
	}
	return settled, err
}

// next waits for the next result and returns it.
func (l *ledger) next(tb testing.TB) result {
	tb.Helper()
	select {
	case r := <-l.settled:
		return r
	case <-time.After(2 * unhurried):
		tb.Fatal("nothing is settled")
		panic(errors.ErrUnsupported)
	}
}

// unhurried is a timeout that attempts do not reach even on a slow machine.
const unhurried = time.Minute

// reaching returns a config for a service that can reach the test receivers.
func reaching(logs *testlog.Book) webhooks.Config {
	return webhooks.Config{
		Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), Timeout: unhurried}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Hour}}, Logger: logs.Logger(),
	}
}

// attempt publishes an event to a webhook at the URL and returns the result of the first attempt.
func attempt(t *testing.T, url string, change func(*webhooks.Config)) result {
	t.Helper()
	store, logs := newLedger(), &testlog.Book{}
	config := reaching(logs)
	if change != nil {
		change(&config)
	}
	service := newService(t, store, config)
	webhook := subscribe(t, service, url)
	stop := start(t, service)
	event := publish(t, service)
	settlement := store.next(t)
	stop()
	checkRecord(t, delivery(t, service, event), settlement)
	for _, text := range []string{logs.String(), settlement.Attempt.Error, string(settlement.Attempt.Class)} {
		if strings.Contains(text, "SENTINEL") || strings.Contains(text, webhook.Secret.Reveal()) {
			t.Errorf("the URL or the secret is shown: %s", text)
		}
	}
	if len(logs.Lines("webhook="+webhook.ID, "event="+event, "attempt=1")) != 1 {
		t.Errorf("the attempt is not logged, or more than once:\n%s", logs)
	}
	return settlement
}

// try makes one attempt at the URL, even if the service would refuse a webhook with this URL.
func try(t *testing.T, service *webhooks.WebhookService, url string) webhooks.Attempt {
	t.Helper()
	got := service.Attempt(t.Context(), &webhooks.Task{
		Event:   mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}),
		Webhook: &webhooks.Webhook{ID: "wh_1", URL: url, Secret: signing.NewSecret()},
		Attempt: 1,
	})
	if (got.Class == "") != (got.Error == "") {
		t.Errorf("%+v", got)
	}
	return got
}

// checkRecord fails the test unless the delivery's attempt log shows the result.
func checkRecord(t *testing.T, got webhooks.Delivery, want result) {
	t.Helper()
	state := map[driver.Effect]webhooks.DeliveryState{
		driver.Deliver: webhooks.Delivered, driver.Retry: webhooks.Pending, driver.GiveUp: webhooks.Dead,
	}[want.Effect]
	if got.State != state || len(got.Attempts) != 1 {
		t.Fatalf("recorded %+v, want it to be %s after one attempt", got, state)
	}
	logged := got.Attempts[0]
	if logged != want.Attempt {
		t.Errorf("recorded %+v, want %+v", logged, want.Attempt)
	}
	if age := time.Since(logged.StartedAt); logged.Number != 1 || age < 0 || age > time.Minute || logged.StartedAt.Location() != time.UTC ||
		logged.Duration <= 0 || logged.Duration%time.Microsecond != 0 || (logged.Error == "") != (state == webhooks.Delivered) || (logged.Class == "") != (logged.Error == "") {
		t.Errorf("recorded %+v", logged)
	}
}
