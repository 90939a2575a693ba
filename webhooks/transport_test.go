package webhooks_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// through returns a change of a Config that sends requests through the transport.
func through(transport http.RoundTripper) func(*webhooks.Config) {
	return func(config *webhooks.Config) {
		config.Outbound.RootCAs, config.Outbound.Transport = nil, transport
	}
}

// byProxy returns a transport that reaches receivers only through the proxy.
func byProxy(proxy string) *http.Transport {
	return &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return url.Parse(proxy) },
		TLSClientConfig: &tls.Config{RootCAs: trusted().pool()},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if !strings.HasSuffix(proxy, address) {
				return nil, errors.New("dialed past the proxy")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_SameRequestAsBuiltInClient(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "thanks for "+r.Header.Get("Webhook-Signature"))
	})
	direct := &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}}
	results := []result{attempt(t, receiver.url("127.0.0.1"), nil), attempt(t, receiver.url("127.0.0.1"), through(direct))}
	for _, got := range results {
		if got.Effect != driver.Deliver || got.Attempt.Status != http.StatusCreated || got.Attempt.Response != "thanks for [redacted]" {
			t.Errorf("%+v", got.Attempt)
		}
	}
	requests := receiver.requests()
	for _, r := range requests {
		for name := range r.Header {
			if strings.Contains(name, "Signature") || strings.HasPrefix(name, "Webhook-") {
				r.Header[name] = []string{"differs"}
			}
		}
	}
	one, other := requests[0], requests[1]
	if diff := cmp.Diff(one.Header, other.Header); diff != "" || one.RequestURI != other.RequestURI || one.Host != other.Host || other.ContentLength != int64(len(other.body)) {
		t.Errorf("requests differ (-built-in +transport):\n%s%s %s, %s %s", diff, one.Host, one.RequestURI, other.Host, other.RequestURI)
	}
}

func TestTransport_AddressIsRefused_IsNotCalled(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	transport := roundTripper(func(*http.Request) (*http.Response, error) {
		calls.Add(1)
		return nil, errors.New("called")
	})
	for _, host := range []string{"private.example.com", "both.example.com", "unknown.example.com"} {
		fails(t, attempt(t, "https://"+host+secretPath, func(config *webhooks.Config) {
			through(transport)(config)
			config.Outbound.AllowNetworks = config.Outbound.AllowNetworks[:1]
		}), nowhere)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the transport was called %d times", n)
	}
}

func TestTransport_HostAllowed_NeedsNoLookup(t *testing.T) {
	t.Parallel()
	got := attempt(t, "https://receiver.internal"+secretPath, func(config *webhooks.Config) {
		config.Outbound.AllowHosts = []string{"receiver.internal"}
		through(roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
		}))(config)
	})
	if got.Effect != driver.Deliver {
		t.Errorf("%+v", got.Attempt)
	}
}

// Errors of a transport reach the owner of the webhook only as one of the known texts.
func TestTransport_Fails_AttemptCounts(t *testing.T) {
	t.Parallel()
	answer := func(response *http.Response, err error) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) { return response, err })
	}
	certificate := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: newAuthority().pool()}}
	receiver := newReceiver(t, status(http.StatusOK))
	for name, test := range map[string]struct {
		transport http.RoundTripper
		want      string
	}{
		"unknown error":     {answer(nil, errors.New("SENTINEL")), "no valid HTTP response"},
		"no response":       {answer(nil, nil), "no valid HTTP response"},
		"status 0":          {answer(&http.Response{StatusCode: 0, Body: http.NoBody}, nil), "no valid HTTP response"},
		"status 3 billion":  {answer(&http.Response{StatusCode: 3_000_000_000, Body: http.NoBody}, nil), "no valid HTTP response"},
		"panic":             {roundTripper(func(*http.Request) (*http.Response, error) { panic("SENTINEL") }), "panic"},
		"hangs":             {roundTripper(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }), "timed out"},
		"unknown authority": {certificate, tlsUnknown},
		"redirect":          {answer(&http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"/SENTINEL"}}, Body: http.NoBody}, nil), "status 302: redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attempt(t, receiver.url("127.0.0.1"), func(config *webhooks.Config) {
				through(test.transport)(config)
				if name == "hangs" {
					config.Outbound.Timeout = 50 * time.Millisecond
				}
			})
			if got.Effect != driver.Retry || got.Attempt.Error != test.want {
				t.Errorf("%+v, want %q", got.Attempt, test.want)
			}
		})
	}
}

func TestTransport_WithRootCAs_IsInvalid(t *testing.T) {
	config := reaching(&testlog.Book{})
	config.Outbound.Transport = http.DefaultTransport
	_, err := webhooks.New(newLedger(), config)
	wantInvalid(t, err, "Outbound.RootCAs")
}

func TestTransport_ReceiverSpeaksOnlyHTTP2_Delivers(t *testing.T) {
	t.Parallel()
	receiver := &receiver{}
	listener := receiver.listen(t)
	var protocol atomic.Value
	server := &http.Server{
		Handler:   http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol.Store(r.Proto) }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{goodCertificate()}},
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP2(true)
	go server.ServeTLS(listener, "", "")
	t.Cleanup(func() { server.Close() })
	outbound := webhooks.Outbound{AllowNetworks: loopback}
	transport := &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}, DialContext: outbound.Dialer(),
	}
	if got := attempt(t, receiver.url("127.0.0.1"), through(transport)); got.Effect != driver.Deliver || protocol.Load() != "HTTP/2.0" {
		t.Errorf("%+v by %v", got.Attempt, protocol.Load())
	}
	transport.CloseIdleConnections()
	transport.DialContext = webhooks.Outbound{}.Dialer()
	fails(t, attempt(t, receiver.url("127.0.0.1"), through(transport)), "the address is in a private or reserved network")
}

// Names of one account that hang in a transport's Dialer do not delay other accounts. The Dialer knows
// the account from the context of the request.
func TestDialer_NamesOfOneAccountHang_OthersConnect(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	dial := webhooks.Outbound{AllowNetworks: loopback}.Dialer()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	transport := &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: trusted().pool()}, DisableKeepAlives: true}
	config := reaching(&testlog.Book{})
	config.Outbound.Timeout = 5 * time.Second
	through(roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/hangs" {
			hangs, stop := context.WithCancel(context.WithoutCancel(r.Context()))
			context.AfterFunc(ctx, stop)
			for i := range 200 {
				go func() { _, _ = dial(hangs, "tcp", fmt.Sprintf("n%d.silent.example.com:443", i)) }()
			}
		}
		return transport.RoundTrip(r)
	}))(&config)
	service := newService(t, newLedger(), config)
	attempt := func(account, url string) webhooks.Attempt {
		return service.Attempt(t.Context(), &webhooks.Task{
			Event:   mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}),
			Webhook: &webhooks.Webhook{ID: "wh_" + account, Account: account, URL: url, Secret: signing.NewSecret()}, Attempt: 1,
		})
	}
	before, own := unanswered.Load(), receiver.url("hooks.example.com")
	attempt("hanging", strings.Replace(own, secretPath, "/hangs", 1))
	eventually(t, func() bool { return unanswered.Load() >= before+8 })
	for i := range 10 {
		if got := attempt(fmt.Sprint("acct_", i), own); got.Status != http.StatusOK {
			t.Errorf("account %d: %+v, want status 200", i, got)
		}
	}
}

// A failure of the proxy is no failure of the receiver: deliveries wait and use up no attempt.
func TestTransport_Tinyproxy_FailureOfProxyUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("tinyproxy")
	if err != nil {
		t.Skip("tinyproxy is not installed: apt-get install tinyproxy")
	}
	address := freeAddress(t)
	host, port, _ := net.SplitHostPort(address)
	settings := filepath.Join(t.TempDir(), "tinyproxy.conf")
	noError(t, os.WriteFile(settings, fmt.Appendf(nil, "Port %s\nListen %s\nTimeout 60\nMaxClients 10\n", port, host), 0o600))
	run := func() (stop func()) {
		proxy := exec.Command(program, "-d", "-c", settings)
		noError(t, proxy.Start())
		eventually(t, func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		return func() { _ = proxy.Process.Kill(); _ = proxy.Wait() }
	}
	stop := run()
	defer func() { stop() }()

	receiver, logs := newReceiver(t, status(http.StatusOK)), &testlog.Book{}
	config := reaching(logs)
	transport := byProxy("http://" + address)
	through(transport)(&config)
	service := newService(t, newLedger(), config)
	subscribe(t, service, receiver.url("127.0.0.1"))
	start(t, service)
	delivered := func(event string) bool { return delivery(t, service, event).State == webhooks.Delivered }
	event := publish(t, service)
	eventually(t, func() bool { return delivered(event) })

	stop()
	transport.CloseIdleConnections()
	event = publish(t, service)
	eventually(t, func() bool { return len(logs.Lines("level=ERROR", "proxy failed")) > 0 })
	stop = run()
	eventually(t, func() bool { return delivered(event) })
	if got := delivery(t, service, event).Attempts; len(got) != 1 || got[0].Number != 1 {
		t.Errorf("attempts: %+v, want only the first, which was made after the proxy came back", got)
	}
	if n := len(receiver.requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestTransport_ErrProxy_UsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	config := reaching(&testlog.Book{})
	through(roundTripper(func(*http.Request) (*http.Response, error) {
		if calls.Add(1) == 1 {
			return nil, fmt.Errorf("407: %w", webhooks.ErrProxy)
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))(&config)
	service := newService(t, newLedger(), config)
	subscribe(t, service, "https://127.0.0.1/")
	start(t, service)
	event := publish(t, service)
	eventually(t, func() bool { return delivery(t, service, event).State == webhooks.Delivered })
	if got := delivery(t, service, event).Attempts; len(got) != 1 || got[0].Number != 1 {
		t.Errorf("attempts: %+v, want only the first", got)
	}
}

func TestTransport_SOCKS5_Delivers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSOCKS(conn)
		}
	}()
	receiver := newReceiver(t, status(http.StatusOK))
	transport := byProxy("socks5://" + listener.Addr().String())
	if got := attempt(t, receiver.url("127.0.0.1"), through(transport)); got.Effect != driver.Deliver {
		t.Errorf("%+v", got.Attempt)
	}
	listener.Close()
}

// serveSOCKS connects to an IPv4 address without authentication (RFC 1928).
func serveSOCKS(conn net.Conn) {
	defer conn.Close()
	greeting := make([]byte, 2)
	_, _ = io.ReadFull(conn, greeting)
	_, _ = io.CopyN(io.Discard, conn, int64(greeting[1]))
	_, _ = conn.Write([]byte{5, 0})
	request := make([]byte, 10)
	if _, err := io.ReadFull(conn, request); err != nil || request[3] != 1 {
		return
	}
	to, err := net.Dial("tcp", fmt.Sprintf("%v:%d", net.IP(request[4:8]), binary.BigEndian.Uint16(request[8:])))
	if err != nil {
		return
	}
	defer to.Close()
	_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go io.Copy(to, conn)
	_, _ = io.Copy(conn, to)
}

// eventually waits until done returns true.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(unhurried); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not happened")
		}
	}
}

// freeAddress returns an address of this machine at which nothing listens.
func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
