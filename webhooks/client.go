package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/signing"
)

const (
	bodyTimeout = time.Second
	maxIdle     = 1024 // connections kept, also if all are to one host: many webhooks often share one
)

// A client makes attempts. It is the only way to a receiver: it dials nothing that
// the guard refuses, uses no proxy, follows no redirect, verifies TLS, and bounds
// time and memory.
type client struct {
	transport *http.Transport
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	tls       *tls.Config
	header    string // of the signature
	timeout   time.Duration
	now       func() time.Time
	endpoints endpoints
}

func newClient(g guard, roots *x509.CertPool, header string, timeout time.Duration, now func() time.Time) *client {
	c := &client{
		dial:    g.dial,
		tls:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, // and HTTP/1.1 only: no NextProtos
		header:  http.CanonicalHeaderKey(header),
		timeout: timeout,
		now:     now,

		endpoints: endpoints{kept: make(map[string]*endpoint)},
	}
	c.transport = &http.Transport{
		Proxy:                  nil, // it would dial for us, unguarded
		DialContext:            g.dial,
		DialTLSContext:         c.connect,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		MaxIdleConns:           maxIdle,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
	return c
}

// connect returns a TLS connection to a host and port. It takes no longer than an
// attempt; the transport does not end it with the attempt that needed it.
func (c *client) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := c.tls.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, classifyHandshake(err)
	}
	return secure, nil
}

// A result is what came of an attempt.
type result struct {
	attempt    Attempt
	gone       bool          // the receiver wants no more events: 410
	retryAfter time.Duration // what the receiver asked for
	canceled   bool          // the attempt was cut short by us
}

// fail records why the attempt failed; the zero failure, that it did not.
func (r *result) fail(f failure) { r.attempt.Class, r.attempt.Error = f.class, f.text }

// attempt sends the task's event to its webhook, once, and judges the answer. It
// takes no longer than the timeout and never panics. cancel ends ctx, which is for
// this attempt only: whoever calls it cuts the attempt short, and the caller does when
// it has returned.
func (c *client) attempt(ctx context.Context, cancel context.CancelFunc, task *Task) (res result) {
	begun := time.Now() // measures by the monotonic clock, whatever clock the host set
	res.attempt.Number = task.Attempt
	defer func() {
		if p := recover(); p != nil {
			res.fail(errPanic) // its value could hold anything
		}
		res.attempt.Duration = time.Since(begun).Truncate(time.Microsecond)
	}()
	started := c.now()
	res.attempt.StartedAt = started.UTC().Truncate(time.Millisecond)

	endpoint, err := c.endpoints.of(&task.Webhook, c.header, started)
	if err != nil {
		res.fail(classify(err))
		return res
	}
	var late atomic.Bool
	timer := time.AfterFunc(c.timeout, func() {
		late.Store(true)
		cancel()
	})
	defer timer.Stop()

	// Not an http.Client: that one follows redirects and keeps cookies.
	request := endpoint.request(ctx, &task.Event, started)
	response, err := c.transport.RoundTrip(request)
	if err == nil {
		defer response.Body.Close()
	}
	switch {
	case late.Load():
		// Whatever came: a receiver that is cut off may answer that, and Go's
		// own answers 200.
		res.fail(errTimeout)
		return res
	case ctx.Err() != nil:
		res.canceled = true
		res.fail(errCanceled)
		return res
	case err != nil:
		res.fail(classify(err))
		return res
	}

	// The verdict is in, and the body changes nothing of it. That of 101
	// Switching Protocols is the bare connection, which has no end, and which the
	// context does not close any more.
	if response.Body != http.NoBody && response.StatusCode != http.StatusSwitchingProtocols {
		timer.Reset(min(bodyTimeout, c.timeout-time.Since(begun)))
		res.attempt.Response = readResponse(response,
			task.Webhook.Secret.Reveal(), task.Webhook.PreviousSecret.Reveal(), request.Header[c.header][0], request.Header[signing.HeaderSignature][0])
	}
	res.attempt.Status = response.StatusCode
	res.fail(judge(response.StatusCode))
	res.gone = response.StatusCode == http.StatusGone
	res.retryAfter = retryAfter(response.Header, c.now())
	return res
}
