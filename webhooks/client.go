package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/storageapi/storageapi/signing"
)

const (
	maxResponseBody   = 4 << 10  // read of a response, so that its connection can be used again
	maxResponseHeader = 16 << 10 // accepted of a response
	bodyTimeout       = time.Second
	maxIdle           = 1024 // connections kept, also if all are to one host: many webhooks often share one
)

// A client makes attempts. It is the only way to a receiver: it dials no address
// that the guard refuses, uses no proxy, follows no redirect, verifies TLS, and
// bounds time and memory.
type client struct {
	transport *http.Transport
	header    string // of the signature
	timeout   time.Duration
	now       func() time.Time
}

func newClient(g guard, roots *x509.CertPool, header string, timeout time.Duration, now func() time.Time) *client {
	dialer := &net.Dialer{Timeout: timeout, Control: g.Safe}
	return &client{
		transport: &http.Transport{
			Proxy:                  nil, // a proxy would dial for us, unguarded
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    timeout,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 only
			DisableCompression:     true,
			MaxIdleConnsPerHost:    maxIdle,
			MaxIdleConns:           maxIdle,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxResponseHeader,
		},
		header:  header,
		timeout: timeout,
		now:     now,
	}
}

// A result is what came of an attempt.
type result struct {
	attempt    Attempt
	gone       bool          // the receiver wants no more events: 410
	retryAfter time.Duration // what the receiver asked for
	canceled   bool          // the attempt was cut short by us
}

// attempt sends the task's event to its webhook, once, and judges the answer. It
// takes no longer than the timeout and never panics.
func (c *client) attempt(ctx context.Context, task *Task) (res result) {
	started := c.now()
	res.attempt = Attempt{Number: task.Attempt, StartedAt: started.UTC().Truncate(time.Millisecond)}
	elapsed := stopwatch()
	defer func() {
		if p := recover(); p != nil {
			res.attempt.Error = "panic" // its value could hold anything
		}
		res.attempt.Duration = elapsed().Truncate(time.Microsecond)
	}()

	timed, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	response, err := c.send(timed, task, started)
	if err == nil && timed.Err() != nil {
		// A receiver that is cut off may answer that, and Go's own answers 200.
		response.Body.Close()
		err = timed.Err()
	}
	if err != nil {
		res.canceled = ctx.Err() != nil
		res.attempt.Error = describe(err)
		return res
	}
	// The verdict is in. The body is read only to use the connection again. That
	// of 101 Switching Protocols is the bare connection, which has no end, and
	// which the context does not close any more.
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		timer := time.AfterFunc(bodyTimeout, cancel)
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, response.Body, maxResponseBody)
	}

	res.attempt.Status = response.StatusCode
	res.attempt.Error = judge(response.StatusCode)
	res.gone = response.StatusCode == http.StatusGone
	res.retryAfter = retryAfter(response.Header, c.now())
	return res
}

// stopwatch measures with the monotonic clock, whatever clock the host set.
func stopwatch() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// What stands in the way of sending; the errors behind them could hold secrets.
var (
	errNoSecret = errors.New("no usable signing secret")
	errNoURL    = errors.New("no usable URL")
)

// send returns the response to the signed request. It calls the transport and not
// an http.Client: that one follows redirects and keeps cookies.
func (c *client) send(ctx context.Context, task *Task, at time.Time) (*http.Response, error) {
	signer, err := signing.NewSigner(c.header, task.Webhook.Secret)
	if err != nil {
		return nil, errNoSecret
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, task.Webhook.URL, bytes.NewReader(task.Event.Body))
	if err != nil {
		return nil, errNoURL
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", "storageapi-webhooks/1")
	// Not sent, since it has no value, but it lets the transport send again on a
	// new connection what an idle one was closed under; webhook-id is the same.
	request.Header["X-Idempotency-Key"] = nil
	signer.Sign(request.Header, task.Event.ID, at, task.Event.Body)
	return c.transport.RoundTrip(request)
}

// judge returns why a response is a failure, or "" for success.
func judge(status int) string {
	switch {
	case status >= 200 && status <= 299:
		return ""
	case status >= 300 && status <= 399:
		return fmt.Sprintf("status %d: redirects are not followed", status)
	}
	return fmt.Sprintf("status %d", status)
}

// describe says in a few words why no response came, without what the error may
// hold of the URL or of what the receiver sent.
func describe(err error) string {
	var (
		timeout    interface{ Timeout() bool }
		dns        *net.DNSError
		operation  *net.OpError
		urlError   *url.Error
		authority  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		expired    x509.CertificateInvalidError
		record     tls.RecordHeaderError
		alert      tls.AlertError
		verifyFail *tls.CertificateVerificationError
	)
	if errors.As(err, &urlError) {
		err = urlError.Err
	}
	switch {
	case errors.Is(err, errNoSecret), errors.Is(err, errNoURL):
		return err.Error()
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return "the address is in a private or special network"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.As(err, &dns):
		return "the host name was not found"
	case errors.As(err, &authority):
		return "TLS: the certificate is not signed by a known authority"
	case errors.As(err, &hostname):
		return "TLS: the certificate is for another host"
	case errors.As(err, &expired):
		return "TLS: the certificate is not valid"
	case errors.As(err, &verifyFail), errors.As(err, &record), errors.As(err, &alert), strings.Contains(err.Error(), "tls: "):
		return "TLS: the handshake failed"
	case errors.As(err, &operation) && operation.Op == "dial":
		return "could not connect"
	case errors.As(err, &operation), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke"
	}
	return "no valid HTTP response"
}
