package webhooks_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// fails fails the test unless the attempt failed for the reason, before there was
// a response.
func fails(t *testing.T, got webhooks.Settlement, reason string) {
	t.Helper()
	if got.Outcome != webhooks.Retry || got.Attempt.Status != 0 || got.Attempt.Error != reason {
		t.Errorf("outcome %d, %+v, want %q", got.Outcome, got.Attempt, reason)
	}
}

func TestReceiversAreAuthenticated(t *testing.T) {
	t.Parallel()
	const (
		unknown = "TLS: the certificate is not signed by a known authority"
		other   = "TLS: the certificate is for another host"
		invalid = "TLS: the certificate is not valid"
		failed  = "TLS: the handshake failed"
	)
	self := newAuthority()
	showing := func(certificate tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{certificate}}
	}
	tests := map[string]struct {
		config *tls.Config
		host   string
		reason string
	}{
		"good":                     {showing(goodCertificate()), "hooks.example.com", ""},
		"good, by address":         {showing(goodCertificate()), "127.0.0.1", ""},
		"good, with a final dot":   {showing(goodCertificate()), "hooks.example.com.", ""},
		"unknown authority":        {showing(self.issue(longAgo, farOff, "hooks.example.com")), "hooks.example.com", unknown},
		"another host":             {showing(trusted().issue(longAgo, farOff, "evil.example.com")), "hooks.example.com", other},
		"another address":          {showing(trusted().issue(longAgo, farOff, "127.0.0.2")), "127.0.0.1", other},
		"a name, not an address":   {showing(trusted().issue(longAgo, farOff, "*.example.com")), "127.0.0.1", other},
		"expired":                  {showing(trusted().issue(longAgo, noon.AddDate(-1, 0, 0), "hooks.example.com")), "hooks.example.com", invalid},
		"not valid yet":            {showing(trusted().issue(farOff.AddDate(-1, 0, 0), farOff, "hooks.example.com")), "hooks.example.com", invalid},
		"an authority's own":       {showing(tls.Certificate{Certificate: [][]byte{self.certificate.Raw}, PrivateKey: self.key}), "hooks.example.com", other},
		"TLS 1.1 at most":          {&tls.Config{Certificates: []tls.Certificate{goodCertificate()}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "hooks.example.com", failed},
		"wants our certificate":    {&tls.Config{Certificates: []tls.Certificate{goodCertificate()}, ClientAuth: tls.RequireAnyClientCert}, "hooks.example.com", failed},
		"HTTP/2 only, it pretends": {&tls.Config{Certificates: []tls.Certificate{goodCertificate()}, NextProtos: []string{"h2"}}, "hooks.example.com", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := serveTLS(t, test.config, status(http.StatusOK))
			got := attempt(t, receiver.url(test.host), nil)
			if test.reason != "" {
				fails(t, got, test.reason)
				if n := len(receiver.requests()); n != 0 {
					t.Errorf("it got %d requests", n)
				}
			} else if got.Outcome != webhooks.Deliver {
				t.Errorf("%+v", got.Attempt)
			}
		})
	}
}

func TestPortsThatDoNotSpeakTLS(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle func(net.Conn)
		reason string
	}{
		"plain HTTP": {func(conn net.Conn) { say("HTTP/1.1 200 OK\r\n\r\nSENTINEL")(conn); hang(conn) }, "TLS: the handshake failed"},
		"SSH":        {func(conn net.Conn) { say("SSH-2.0-SENTINEL\r\n")(conn); hang(conn) }, "TLS: the handshake failed"},
		"an alert":   {func(conn net.Conn) { say("\x15\x03\x03\x00\x02\x02\x28")(conn); hang(conn) }, "TLS: the handshake failed"},
		"nothing":    {func(net.Conn) {}, "the connection broke"},
		"a reset":    {func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }, "the connection broke"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handle := test.handle
			receiver := newTCPReceiver(t, func(conn net.Conn) {
				_, _ = io.ReadAtLeast(conn, make([]byte, 4096), 100) // the greeting
				handle(conn)
			})
			fails(t, attempt(t, receiver.url("hooks.example.com"), nil), test.reason)
		})
	}
}

func TestReceiversThatCannotBeReached(t *testing.T) {
	t.Parallel()
	closed := &receiver{}
	closed.listen(t).Close()
	fails(t, attempt(t, closed.url("hooks.example.com"), nil), "could not connect")
	fails(t, attempt(t, closed.url("nowhere.example.com"), nil), "the host name was not found")
	fails(t, attempt(t, closed.url("localhost.nowhere.example.com"), nil), "the host name was not found")
}

// The guard looks at the address that is dialled, whatever the name was: a
// webhook can be registered and its name changed afterwards.
func TestTheGuardRefusesWhatANameResolvesTo(t *testing.T) {
	t.Parallel()
	const refused = "the address is in a private or special network"
	receiver := newReceiver(t, status(http.StatusOK))
	open := func(networks ...string) func(*webhooks.Config) {
		return func(config *webhooks.Config) {
			config.AllowNetworks = nil
			for _, network := range networks {
				config.AllowNetworks = append(config.AllowNetworks, netip.MustParsePrefix(network))
			}
			config.Timeout = 2 * time.Second
		}
	}
	for _, host := range []string{
		"hooks.example.com", "HOOKS.example.com.", "six.example.com", "both.example.com", "mapped.example.com", "private.example.com", "azure.example.com",
	} {
		fails(t, attempt(t, receiver.url(host), open()), refused)
	}
	// What is open for others is not open for these.
	fails(t, attempt(t, receiver.url("hooks.example.com"), open("::1/128", "10.0.0.0/8", "127.0.0.2/32")), refused)
	fails(t, attempt(t, receiver.url("private.example.com"), open("127.0.0.0/8", "::/0")), refused)
	fails(t, attempt(t, receiver.url("mapped.example.com"), open("::/0")), refused)
	if n := receiver.conns.Load(); n != 0 {
		t.Fatalf("the receiver was reached %d times", n)
	}

	if got := attempt(t, receiver.url("hooks.example.com"), open("127.0.0.1/32")); got.Outcome != webhooks.Deliver {
		t.Errorf("once it is open: %+v", got.Attempt)
	}
	// One of the name's addresses is open: that one is used.
	if got := attempt(t, receiver.url("both.example.com"), open("127.0.0.1/32")); got.Outcome != webhooks.Deliver {
		t.Errorf("once one of two is open: %+v", got.Attempt)
	}
}

// A literal address that was open when the webhook was made is refused when it is
// dialled by a service that does not open it.
func TestTheGuardRefusesStoredAddresses(t *testing.T) {
	t.Parallel()
	receiver, store, logs := newReceiver(t, status(http.StatusOK)), newLedger(), &logbook{}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		subscribe(t, newService(t, store, reaching(logs)), receiver.url(host))
	}
	config := reaching(logs)
	config.AllowNetworks = nil
	strict := newService(t, store, config)
	start(t, strict)
	publish(t, strict)
	for range 2 {
		fails(t, store.next(t), "the address is in a private or special network")
	}
	if receiver.conns.Load() != 0 {
		t.Error("the receiver was reached")
	}
}
