package webhooks_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// newTalker starts a TLS receiver that calls respond for each request on a connection, until
// respond returns false. n counts the requests of all connections, from 1.
func newTalker(t *testing.T, respond func(n int, conn net.Conn) (more bool)) *receiver {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{goodCertificate()}}
	var requests atomic.Int64
	return newTCPReceiver(t, func(conn net.Conn) {
		secure := tls.Server(conn, config)
		defer secure.Close()
		for {
			if _, err := readRequest(secure); err != nil || !respond(int(requests.Add(1)), secure) {
				return
			}
		}
	})
}

// payloads holds a small and a large payload. A small request is sent in one write; a large
// request is still being sent when the wait for the response begins.
var payloads = map[string]webhooks.Data{
	"short": lowBalance,
	"long":  alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: strings.Repeat("f", 100_000), ExpiresAt: time.Unix(1_800_000_000, 0)}}},
}

// attempts returns a function that makes an attempt at the receiver. All attempts share
// connections.
func attempts(t *testing.T, receiver *receiver) func(webhooks.Data) webhooks.Attempt {
	t.Helper()
	service := newService(t, memory.New(), webhooks.Config{
		Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), Timeout: unhurried},
	})
	webhook := webhooks.Webhook{ID: "wh_1", URL: receiver.url("127.0.0.1"), Secret: signing.NewSecret()}
	return func(data webhooks.Data) webhooks.Attempt {
		event := mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: data})
		return service.Attempt(t.Context(), &webhooks.Task{Event: event, Webhook: &webhook, Attempt: 1})
	}
}

const noContent = "HTTP/1.1 204 No Content\r\n\r\n"

// Extra bytes after a response must not count as the response to the next event, which would then
// wrongly count as delivered.
func TestConn_StrayResponse_IsIgnored(t *testing.T) {
	t.Parallel()
	for name, stray := range map[string]func(net.Conn){
		"with the response":       func(c net.Conn) { say(noContent + noContent)(c) },
		"right after it":          func(c net.Conn) { say(noContent)(c); say(noContent)(c) },
		"half of one":             func(c net.Conn) { say(noContent + "HTTP/1.1 2")(c) },
		"after a body":            func(c net.Conn) { say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + noContent)(c) },
		"after the end of chunks": func(c net.Conn) { say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + noContent)(c) },
		"instead of no body":      func(c net.Conn) { say(noContent + "oops")(c) },
		"much later":              func(c net.Conn) { say(noContent)(c); time.Sleep(20 * time.Millisecond); say(noContent)(c) },
	} {
		for length, next := range payloads {
			t.Run(name+"/"+length, func(t *testing.T) {
				t.Parallel()
				said := make(chan bool, 1)
				receiver := newTalker(t, func(n int, conn net.Conn) bool {
					if n == 1 {
						stray(conn)
						said <- true
					} else {
						say("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")(conn)
					}
					return true
				})
				attempt := attempts(t, receiver)
				if got := attempt(lowBalance); got.Error != "" {
					t.Fatalf("%+v", got)
				}
				<-said
				if got := attempt(next); got.Status != 500 {
					t.Errorf("the second attempt: %+v", got)
				}
				if n := receiver.conns.Load(); n != 2 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

// needsKeptConnections skips the test on systems where connections are not kept for reuse.
func needsKeptConnections(t *testing.T) {
	t.Helper()
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1":
		t.Skip("no connection is kept on this system")
	}
}

// If a receiver closes an idle connection, even at the moment of its reuse, the attempt succeeds.
// If a new connection breaks, the attempt fails.
func TestIdleConnection_Breaks_AttemptSucceeds(t *testing.T) {
	t.Parallel()
	needsKeptConnections(t)
	for name, test := range map[string]struct {
		respond func(n int, conn net.Conn) bool
		reason  string
		conns   int64
	}{
		"closed while idle":          {func(n int, c net.Conn) bool { say(noContent)(c); return n > 1 }, "", 2},
		"reset while idle":           {func(n int, c net.Conn) bool { say(noContent)(c); resetIf(n == 1, c); return n > 1 }, "", 2},
		"closed by the next request": {func(n int, c net.Conn) bool { return n != 2 && say2(c) }, "", 2},
		"reset by the next request":  {func(n int, c net.Conn) bool { resetIf(n == 2, c); return n != 2 && say2(c) }, "", 2},
		"and the new one, too":       {func(n int, c net.Conn) bool { return n == 1 && say2(c) }, broke, 2},
		"half a response": {func(n int, c net.Conn) bool {
			if n > 1 {
				say("HTTP/1.1 200 OK\r\n")(c)
				return false
			}
			return say2(c)
		}, broke, 1},
	} {
		for length, next := range payloads {
			t.Run(name+"/"+length, func(t *testing.T) {
				t.Parallel()
				receiver := newTalker(t, test.respond)
				attempt := attempts(t, receiver)
				if got := attempt(lowBalance); got.Error != "" {
					t.Fatalf("%+v", got)
				}
				time.Sleep(20 * time.Millisecond) // lets the idle connection change; no result depends on it
				if got := attempt(next); got.Error != test.reason {
					t.Errorf("the second attempt: %+v", got)
				}
				if n := receiver.conns.Load(); n != test.conns {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

// If an idle connection is unusable, another idle connection is used rather than a new connection.
func TestIdleConnection_Unusable_UsesAnother(t *testing.T) {
	t.Parallel()
	needsKeptConnections(t)
	begun, other := make(chan bool), make(chan bool)
	receiver := newTalker(t, func(n int, conn net.Conn) bool {
		if n > 1 {
			return say2(conn)
		}
		close(begun)
		<-other
		say(noContent + noContent)(conn)
		return true
	})
	attempt := attempts(t, receiver)
	var group sync.WaitGroup
	group.Go(func() {
		if got := attempt(lowBalance); got.Error != "" {
			t.Errorf("%+v", got)
		}
	})
	<-begun
	if got := attempt(lowBalance); got.Error != "" {
		t.Errorf("%+v", got)
	}
	close(other)
	group.Wait() // the connection that is reused first has unread bytes
	if got := attempt(lowBalance); got.Error != "" {
		t.Errorf("%+v", got)
	}
	if n := receiver.conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// In one attempt an event is sent at most twice, for any number of idle connections, even to a
// receiver that breaks every connection.
func TestAttempt_ConnectionsBreak_SendsAtMostTwice(t *testing.T) {
	t.Parallel()
	needsKeptConnections(t)
	const idle = 5
	var began sync.WaitGroup
	began.Add(idle)
	var requests atomic.Int64
	receiver := newTalker(t, func(n int, conn net.Conn) bool {
		requests.Add(1)
		if n > idle {
			return false
		}
		began.Done()
		began.Wait()
		return say2(conn)
	})
	attempt := attempts(t, receiver)
	var group sync.WaitGroup
	for range idle {
		group.Go(func() {
			if got := attempt(lowBalance); got.Error != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	group.Wait()
	if got := attempt(lowBalance); got.Error != broke {
		t.Errorf("%+v", got)
	}
	if n := requests.Load() - idle; n != 2 {
		t.Errorf("the event was sent %d times", n)
	}
	if n := receiver.conns.Load(); n != idle+1 {
		t.Errorf("%d connections", n)
	}
}

func say2(conn net.Conn) bool {
	say(noContent)(conn)
	return true
}

func resetIf(now bool, conn net.Conn) {
	if now {
		reset(conn)
	}
}

// Idle connections are closed after a while, and the service leaves none open.
func TestIdleConnectionsAreClosed(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusNoContent), func(b *bubble) {
		var open atomic.Int64
		b.service.DialThrough(counting(b.dial, &open))
		for _, name := range []string{"a", "b", "c"} {
			b.subscribe(name)
		}
		stop := b.start()
		b.publish()
		time.Sleep(80 * time.Second)
		if n := open.Load(); n != 3 {
			t.Errorf("%d connections are open after 80 s", n)
		}
		time.Sleep(50 * time.Second)
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open after 130 s", n)
		}
		b.publish()
		time.Sleep(time.Second)
		stop()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open after Run", n)
		}
	})
}

// Config.Outbound.MaxIdleConns limits the number of kept connections.
func TestMaxIdleConns(t *testing.T) {
	t.Parallel()
	needsKeptConnections(t)
	for keep, want := range map[int][2]int64{0: {3, 3}, 1: {5, 8}, 3: {3, 3}, -1: {9, 9}} { // minimum and maximum number of connections
		receiver := newReceiver(t, status(http.StatusNoContent))
		service := newService(t, memory.New(), webhooks.Config{
			Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), Timeout: unhurried, MaxIdleConns: keep},
		})
		for _, host := range []string{"127.0.0.1", "127.0.0.1", "other.example.com", "other.example.com", "hooks.example.com", "hooks.example.com", "127.0.0.1", "other.example.com", "hooks.example.com"} {
			if got := try(t, service, receiver.url(host)); got.Status != http.StatusNoContent {
				t.Fatalf("%+v", got)
			}
		}
		if n := receiver.conns.Load(); n < want[0] || n > want[1] {
			t.Errorf("with %d: %d connections for 9 attempts at 3 hosts, want %d to %d", keep, n, want[0], want[1])
		}
	}
}

// counting returns a dialer that counts open connections.
func counting(dial dialer, open *atomic.Int64) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &counted{Conn: conn, open: open}, nil
	}
}

type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
