package webhooks_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// The reasons why attempts fail before there is a response.
const (
	blocked    = "the address is in a private or reserved network"
	nowhere    = "no such host name, or none of its addresses is public"
	slow       = "timed out"
	offline    = "this server cannot reach the network"
	broke      = "the connection broke"
	noHTTP     = "no valid HTTP response"
	tlsFailed  = "TLS: the handshake failed"
	tlsUnknown = "TLS: the certificate is not signed by a known authority"
	tlsOther   = "TLS: the certificate is for another host"
	tlsInvalid = "TLS: the certificate is not valid"
)

// classes maps reasons to error classes.
var classes = map[string]webhooks.ErrorClass{
	"": "", blocked: webhooks.ClassBlocked, nowhere: webhooks.ClassDNS, "looking up the host name failed": webhooks.ClassDNS,
	slow: webhooks.ClassTimeout, broke: webhooks.ClassConnection, noHTTP: webhooks.ClassProtocol,
	tlsFailed: webhooks.ClassTLS, tlsUnknown: webhooks.ClassTLS, tlsOther: webhooks.ClassTLS, tlsInvalid: webhooks.ClassTLS,
}

// fails fails the test unless the attempt failed for the reason, without a response.
func fails(t *testing.T, got result, reason string) {
	t.Helper()
	if got.Effect != driver.Retry {
		t.Errorf("outcome %d", got.Effect)
	}
	failed(t, got.Attempt, reason)
}

func failed(t *testing.T, got webhooks.Attempt, reason string) {
	t.Helper()
	if got.Status != 0 || got.Error != reason || got.Class != classes[reason] || got.Class == "" || got.Response != "" {
		t.Errorf("%+v, want %q", got, reason)
	}
}

func TestReceiversAreAuthenticated(t *testing.T) {
	t.Parallel()
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
		"unknown authority":        {showing(self.issue(longAgo, farOff, "hooks.example.com")), "hooks.example.com", tlsUnknown},
		"another host":             {showing(trusted().issue(longAgo, farOff, "evil.example.com")), "hooks.example.com", tlsOther},
		"another address":          {showing(trusted().issue(longAgo, farOff, "127.0.0.2")), "127.0.0.1", tlsOther},
		"a name, not an address":   {showing(trusted().issue(longAgo, farOff, "*.example.com")), "127.0.0.1", tlsOther},
		"expired":                  {showing(trusted().issue(longAgo, noon.AddDate(-1, 0, 0), "hooks.example.com")), "hooks.example.com", tlsInvalid},
		"not valid yet":            {showing(trusted().issue(farOff.AddDate(-1, 0, 0), farOff, "hooks.example.com")), "hooks.example.com", tlsInvalid},
		"an authority's own":       {showing(tls.Certificate{Certificate: [][]byte{self.certificate.Raw}, PrivateKey: self.key}), "hooks.example.com", tlsOther},
		"TLS 1.1 at most":          {&tls.Config{Certificates: []tls.Certificate{goodCertificate()}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "hooks.example.com", tlsFailed},
		"wants our certificate":    {&tls.Config{Certificates: []tls.Certificate{goodCertificate()}, ClientAuth: tls.RequireAnyClientCert}, "hooks.example.com", tlsFailed},
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
			} else if got.Effect != driver.Deliver {
				t.Errorf("%+v", got.Attempt)
			}
		})
	}
}

// A receiver that speaks only HTTP/2 usually fails an attempt by an alert or a frame. In both cases
// the attempt must report the true reason.
func TestReceiver_HTTP2Only_IsReported(t *testing.T) {
	t.Parallel()
	const reason = "the receiver speaks HTTP/2 only; HTTP/1.1 is needed"
	secure := func(protocols ...string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{goodCertificate()}, NextProtos: protocols}
	}
	answering := func(config *tls.Config, answer string) *receiver {
		return newTCPReceiver(t, func(conn net.Conn) {
			c := tls.Server(conn, config)
			defer c.Close()
			if _, err := readRequest(c); err == nil {
				_, _ = io.WriteString(c, answer)
			}
		})
	}
	for name, test := range map[string]struct {
		receiver *receiver
		reason   string
	}{
		"an alert":              {answering(secure("x-other"), noContent), reason},
		"SETTINGS":              {answering(secure(), "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80"), reason},
		"GOAWAY":                {answering(secure(), "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), reason},
		"both, and it broke":    {answering(secure("h2", "http/1.1"), ""), broke},
		"neither, and it broke": {answering(secure(), ""), broke},
		"no frame":              {answering(secure(), "\x00\x00\x06\x09\x00\x00\x00\x00\x00"), noHTTP},
		"half a frame":          {answering(secure(), "\x00\x00\x06\x04"), noHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attempt(t, test.receiver.url("hooks.example.com"), nil)
			if class := got.Attempt.Class; got.Attempt.Error != test.reason || class != webhooks.ClassProtocol && class != webhooks.ClassConnection {
				t.Errorf("%+v, want %q", got.Attempt, test.reason)
			}
		})
	}
}

func TestReceiver_PortWithoutTLS_IsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle func(net.Conn)
		reason string
	}{
		"plain HTTP": {func(conn net.Conn) { say("HTTP/1.1 200 OK\r\n\r\nSENTINEL")(conn); hang(conn) }, tlsFailed},
		"SSH":        {func(conn net.Conn) { say("SSH-2.0-SENTINEL\r\n")(conn); hang(conn) }, tlsFailed},
		"an alert":   {func(conn net.Conn) { say("\x15\x03\x03\x00\x02\x02\x28")(conn); hang(conn) }, tlsFailed},
		"nothing":    {func(net.Conn) {}, broke},
		"a reset":    {func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }, broke},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handle := test.handle
			receiver := newTCPReceiver(t, func(conn net.Conn) {
				_, _ = io.ReadAtLeast(conn, make([]byte, 4096), 100) // the TLS ClientHello
				handle(conn)
			})
			fails(t, attempt(t, receiver.url("hooks.example.com"), nil), test.reason)
		})
	}
}

func TestReceiver_Unreachable_IsReported(t *testing.T) {
	t.Parallel()
	closed := &receiver{}
	closed.listen(t).Close()
	_, port, _ := net.SplitHostPort(closed.address)
	reason := "connection refused by hooks.example.com:" + port
	if got := attempt(t, closed.url("hooks.example.com"), nil); got.Effect != driver.Retry || got.Attempt.Class != webhooks.ClassConnect || got.Attempt.Error != reason {
		t.Errorf("closed port: got %+v, want %q", got, reason)
	}
	fails(t, attempt(t, closed.url("nowhere.example.com"), nil), nowhere)
	fails(t, attempt(t, closed.url("localhost.nowhere.example.com"), nil), nowhere)
	fails(t, attempt(t, closed.url("servfail.example.com"), nil), "looking up the host name failed")
}
