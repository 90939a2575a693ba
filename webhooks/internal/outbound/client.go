package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"
)

const bodyTimeout = time.Second

// A Client makes POSTs, which share its connections.
type Client struct {
	dial     func(ctx context.Context, by caller, address string) (net.Conn, error)
	tls      *tls.Config // nil in tests only: none
	pool     pool
	sessions sessions
	reach    reach

	keepsAll bool // in tests only: also connections that cannot be polled
}

// New returns a client that dials what the guard lets through, and verifies receivers
// against the roots: nil are the system's. It keeps up to maxIdle connections for later
// requests, and twice as many TLS sessions; fewer while that and connections in use would be
// more than three quarters of the descriptors, for its host needs some, too.
func New(guard *Guard, roots *x509.CertPool, maxIdle int) *Client {
	return &Client{
		dial:     guard.dial,
		tls:      &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		pool:     pool{max: maxIdle, maxOpen: maxOpen(descriptors())},
		sessions: sessions{max: max(2*maxIdle, 1)},
	}
}

// DialThrough makes the client connect through dial, past the guard. It is for tests: in
// a bubble of testing/synctest receivers must be in memory.
func (c *Client) DialThrough(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.dial = func(ctx context.Context, _ caller, address string) (net.Conn, error) {
		return dial(ctx, "tcp", address)
	}
	c.keepsAll = true
}

// LookUpThrough makes the client look each name up through resolve before it calls what
// [Client.DialThrough] was given, for tests. Bounds of lookups hold as without it.
func (c *Client) LookUpThrough(resolve func(ctx context.Context, name string) ([]netip.Addr, error)) {
	dial, names := c.dial, &lookups{resolve: resolve}
	c.dial = func(ctx context.Context, by caller, address string) (net.Conn, error) {
		name, _, err := net.SplitHostPort(address)
		if err == nil {
			_, err = names.of(ctx, by, name)
		}
		if err != nil {
			return nil, err
		}
		return dial(ctx, by, address)
	}
}

// SpeakPlain makes the client speak HTTP without TLS. It is for tests.
func (c *Client) SpeakPlain() { c.tls = nil }

// CloseIdle closes the connections that are kept for later requests. Their TLS sessions are
// kept on.
func (c *Client) CloseIdle() { c.pool.close() }

// IdleConns returns how many connections are kept just now.
func (c *Client) IdleConns() int { return c.pool.size() }

// A Request is a POST to be made.
type Request struct {
	Target   *Target
	Header   []Field // beyond the target's
	Body     []byte
	Deadline time.Time // for everything; reading the response's body ends sooner
	Owner    string    // whose target it is: no owner takes what others need
	Standing Standing

	// Secrets returns what [Response.Body] must not show.
	Secrets func() []string
}

// A Standing is what is known of a target from earlier requests.
type Standing uint8

// The standings.
const (
	Failing Standing = iota // all requests since some time have failed
	Untried                 // nothing is known
	Proven                  // a request was answered well, and none has failed since
)

// A caller is on whose account a connection is made, and to what.
type caller struct {
	owner    string
	standing Standing
}

// A Field is a header field.
type Field struct{ Name, Value string }

// Post makes the request once. The Canceler cuts it short. If it fails so that this host
// may be to blame it takes up to two seconds beyond the deadline to find out. An HTTP response of any status
// is told by [Response.Status], the lack of one by [Response.Failure].
func (c *Client) Post(cancel *Canceler, r Request) (res Response) {
	by := caller{r.Owner, r.Standing}
	request := compose(r.Target, r.Header, r.Body)
	defer request.release()
	conn, head, err := c.send(cancel, by, r.Target.address, request.bytes, r.Deadline)
	if err != nil {
		res.Failure, res.Fault = c.blame(cancel, err, by, r.Target.address)
		if res.Canceled = cancel.Canceled(); res.Canceled {
			res.Failure = errCanceled
		}
		return res
	}
	c.reach.answer()
	whole := head.body == nil
	defer func() { c.done(cancel, conn, whole && !head.last) }()
	res.Status, res.header = head.status, head.header
	if !whole {
		end := time.Now().Add(bodyTimeout)
		if r.Deadline.Before(end) {
			end = r.Deadline
		}
		_ = conn.SetReadDeadline(end)
		res.Body, whole = head.read(r.Secrets())
	}
	return res
}

// send sends a request, and returns the head of its response and the connection that it
// came on. If the receiver closed a kept connection just when it was to be used, the
// request is sent once more, on a new one.
func (c *Client) send(cancel *Canceler, by caller, address string, request []byte, deadline time.Time) (*conn, head, error) {
	for again := false; ; again = true {
		var conn *conn
		if !again {
			conn = c.pool.take(address, deadline)
		}
		kept := conn != nil
		if !kept {
			var err error
			if conn, err = c.connect(cancel, by, address, deadline); err != nil {
				return nil, head{}, err
			}
		}
		if !cancel.hold(conn.transport) {
			c.pool.drop(conn)
			return nil, head{}, errCanceled
		}
		response, err := conn.exchange(request)
		if err == nil {
			return conn, response, nil
		}
		silent := !conn.limited.gotBytes && broken(err)
		c.done(cancel, conn, false)
		switch {
		case silent && kept:
			continue
		case silent && !again && c.isForHTTP2(cancel, by, conn, deadline): // one that was kept before spoke HTTP/1.1
			err = errHTTP2
		}
		return nil, head{}, err
	}
}

// connect returns a new connection. While this host has run out of something, connections
// that are kept make room for it.
func (c *Client) connect(cancel *Canceler, by caller, address string, deadline time.Time) (*conn, error) {
	ctx, release := cancel.until(deadline)
	defer release()
	c.pool.begin()
	var made *conn
	defer func() { c.pool.made(made) }()
	conn, err := c.dialTLS(ctx, by, address)
	for err != nil && isAny(err, exhausted) && c.pool.release() {
		conn, err = c.dialTLS(ctx, by, address)
	}
	if err != nil {
		return nil, err
	}
	made = conn
	c.reach.connected(by, address)
	_ = conn.SetDeadline(deadline) // fails if the connection is closed, and so will be noticed
	return conn, nil
}

// dialTLS dials, and shakes hands: all over again, and without a session, if one was
// offered and the receiver does not get over it.
func (c *Client) dialTLS(ctx context.Context, by caller, address string) (*conn, error) {
	resumes := &session{all: &c.sessions, address: address}
	for {
		raw, err := c.dial(ctx, by, address)
		if err != nil {
			return nil, err
		}
		transport := newTransport(raw)
		if c.tls == nil {
			return newConn(address, transport, transport), nil
		}
		config := c.tls.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		config.ClientSessionCache = resumes
		secure := tls.Client(transport, config)
		if err = secure.HandshakeContext(ctx); err == nil {
			conn := newConn(address, secure, transport)
			conn.session = resumes
			resumes.large = resumes.large || isLarge(secure.ConnectionState())
			return conn, nil
		}
		_ = raw.Close()
		if !resumes.offered || ctx.Err() != nil {
			return nil, classifyHandshake(err)
		}
		resumes.forget()
	}
}

// done ends the use of a connection, and keeps it if there can be another request on it.
func (c *Client) done(cancel *Canceler, conn *conn, whole bool) {
	goesOn := cancel.hold(nil)
	if conn.end(whole) && goesOn && conn.isFrugal() && (conn.transport.canPoll() || c.keepsAll) {
		c.pool.put(conn)
	} else {
		c.pool.drop(conn)
	}
}
