package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

const bodyTimeout = time.Second

// A client makes attempts. It is the only way to a receiver: it dials nothing that
// the guard refuses, uses no proxy, follows no redirect, verifies TLS, and bounds
// time and memory.
type client struct {
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	tls       *tls.Config // nil in tests only: none
	header    string      // of the signature
	timeout   time.Duration
	now       func() time.Time
	endpoints endpoints
	conns     conns
	reach     reach
}

func newClient(g guard, roots *x509.CertPool, header string, timeout time.Duration, now func() time.Time) *client {
	return &client{
		dial:      g.dial,
		tls:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		header:    http.CanonicalHeaderKey(header),
		timeout:   timeout,
		now:       now,
		endpoints: endpoints{kept: make(map[string]*endpoint)},
		reach:     reach{asking: make(chan struct{}, 1)},
	}
}

// connect returns a new connection to an account's receiver.
func (c *client) connect(s *stop, account, address string, deadline time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), accountKey{}, account), deadline)
	defer cancel()
	if !s.hold(dialing(cancel)) {
		return nil, errCanceled
	}
	raw, err := c.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	wire := newWire(raw)
	said := net.Conn(wire)
	if c.tls != nil {
		config := c.tls.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		secure := tls.Client(wire, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, classifyHandshake(err)
		}
		said = secure
	}
	c.reach.note(address)
	return newConn(address, said, wire), nil
}

// send sends a request until the deadline, and returns the response and the
// connection that it comes on. If the receiver closed an idle connection just when it
// was to be used, the request is sent once more on a new one; webhook-id is the same.
func (c *client) send(s *stop, account, address string, request []byte, deadline time.Time) (*conn, response, error) {
	spoke := false // HTTP/1.1, on a connection before
	for idle := true; ; {
		var conn *conn
		if idle {
			conn = c.conns.take(address)
		}
		if conn == nil {
			var err error
			if conn, err = c.connect(s, account, address, deadline); err != nil {
				return nil, response{}, err
			}
		}
		if !s.hold(conn.wire) {
			conn.close()
			return nil, response{}, errCanceled
		}
		answer, err := conn.exchange(request, deadline)
		if err == nil {
			return conn, answer, nil
		}
		silent := !conn.incoming.some && broken(err)
		stale := silent && conn.used
		c.done(s, conn, false)
		if !stale && err != errNotQuiet {
			if silent && !spoke && c.isForHTTP2(s, conn, deadline) {
				err = errHTTP2
			}
			return nil, response{}, err
		}
		idle, spoke = err == errNotQuiet, true
	}
}

// done ends the use of a connection, and keeps it if there can be another.
func (c *client) done(s *stop, conn *conn, whole bool) {
	if goesOn := s.hold(nil); conn.end(whole) && goesOn {
		c.conns.put(conn)
	} else {
		conn.close()
	}
}

// A result is what came of an attempt.
type result struct {
	attempt    Attempt
	gone       bool          // the receiver wants no more events: 410
	retryAfter time.Duration // what the receiver asked for
	canceled   bool          // the attempt was cut short by us
	fault      fault         // not theirs: the receiver is not to blame
}

// fail records why the attempt failed; the zero failure, that it did not.
func (r *result) fail(f failure) { r.attempt.Class, r.attempt.Error = f.class, f.text }

// blame records that the attempt failed by a fault of this host's.
func (r *result) blame(f fault) {
	if r.fault = f; f == doubtful || f == dubious {
		r.fail(errOffline)
	}
}

// attempt sends the task's event to its webhook, once, and judges the answer. It
// takes no longer than the timeout and never panics; stop ends it early.
func (c *client) attempt(stop *stop, task *Task) (res result) {
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

	endpoint, err := c.endpoints.of(task.Webhook, c.header, started)
	if err != nil {
		res.fail(classify(err))
		return res
	}
	request := endpoint.request(&task.Event, started)
	defer request.release()
	deadline := begun.Add(c.timeout)
	conn, answer, err := c.send(stop, task.Webhook.Account, endpoint.address, request.bytes, deadline)
	if err != nil {
		res.fail(classify(err))
		if f := faultOf(err); c.isOurs(stop, f, endpoint.address, begun) {
			res.blame(f)
		}
		if res.canceled = stop.wasCalled(); res.canceled {
			res.fail(errCanceled)
		}
		return res
	}
	whole := answer.body == nil
	defer func() { c.done(stop, conn, whole && !answer.last) }()

	// The verdict is in, and the body changes nothing of it.
	res.attempt.Status = answer.status
	res.fail(judge(answer.status))
	res.gone = answer.status == http.StatusGone
	res.retryAfter = retryAfter(answer.header, c.now())
	if !whole {
		_ = conn.SetReadDeadline(earliest(deadline, time.Now().Add(bodyTimeout)))
		res.attempt.Response, whole = answer.read(request.secrets(task.Webhook, c.header)...)
	}
	return res
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
