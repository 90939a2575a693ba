package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

const bodyTimeout = time.Second

// A Client makes POSTs over a shared pool of connections.
type Client struct {
	config   Config
	dial     func(ctx context.Context, by Caller, address string) (net.Conn, error)
	tls      *tls.Config // nil means plain HTTP
	pool     pool
	sessions sessions
	reach    reach
}

// A Config configures a [Client].
type Config struct {
	// Dial, such as [Guard.Dial], connects to a host and port.
	Dial func(ctx context.Context, by Caller, address string) (net.Conn, error)

	// Transport, if not nil, makes the requests. Dial is not used then. Check, such as [Guard.Check],
	// is called before each request.
	Transport http.RoundTripper
	Check     func(ctx context.Context, by Caller, address string) error

	// RootCAs verify the receivers' certificates. Default: the system's root CAs.
	RootCAs *x509.CertPool

	// Plain sends requests without TLS, for a network simulated within this process. Default: TLS.
	Plain bool

	// MaxIdle is the number of connections kept for later requests. TLS sessions are kept for up to
	// twice as many connections. Idle connections are also closed while the client would otherwise
	// have more than three quarters of the process's file descriptors open, because the host needs
	// some for itself.
	MaxIdle int
}

// New returns a client.
func New(config Config) *Client {
	c := &Client{
		config:   config,
		dial:     config.Dial,
		pool:     pool{max: config.MaxIdle, maxOpen: maxOpen(descriptors()), random: rand.IntN},
		sessions: sessions{max: max(2*config.MaxIdle, 1)},
	}
	if !config.Plain {
		c.tls = &tls.Config{RootCAs: config.RootCAs, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	return c
}

// CloseIdle closes the idle connections of the client and of Config.Transport. It keeps their TLS
// sessions.
func (c *Client) CloseIdle() {
	c.pool.close()
	if c.config.Transport != nil {
		(&http.Client{Transport: c.config.Transport}).CloseIdleConnections()
	}
}

// IdleConns returns the number of idle connections.
func (c *Client) IdleConns() int { return c.pool.size() }

// A Request describes a POST.
type Request struct {
	Target   *Target
	Header   []Field // in addition to the target's
	Body     []byte
	Deadline time.Time // for the whole exchange; reading the response body ends sooner
	Owner    string    // the target's owner; lookups are shared fairly among owners
	Standing Standing

	// Secrets returns the strings to redact from [Response.Body].
	Secrets func() []string
}

// A Standing summarizes the outcome of earlier requests to a target.
type Standing uint8

// The standings.
const (
	Failing Standing = iota // the latest requests failed
	Untried                 // no record
	Proven                  // a request succeeded, and none has failed since
)

// A Caller identifies the owner and the standing of the target for which a connection is made.
type Caller struct {
	owner    string
	standing Standing
}

// A Field is a header field.
type Field struct{ Name, Value string }

// Post makes one request; cancel can end it early. After a failure that this host may have caused,
// Post takes up to two seconds beyond the deadline to find the cause. It sets [Response.Status] if
// it received any HTTP response, and [Response.Failure] otherwise.
func (c *Client) Post(cancel *Canceler, r Request) (res Response) {
	if c.config.Transport != nil {
		return c.roundTrip(cancel, r)
	}
	by := Caller{r.Owner, r.Standing}
	request := compose(r.Target, r.Header, r.Body)
	defer request.release()
	conn, head, err := c.send(cancel, by, r.Target.address, request.bytes, r.Deadline)
	if err != nil {
		failure, fault := c.blame(cancel, err, by, r.Target.address)
		return failed(cancel, failure, fault)
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

// failed returns the Response of a Post without a response.
func failed(cancel *Canceler, failure Failure, fault Fault) Response {
	if cancel.Canceled() {
		return Response{Failure: errCanceled, Fault: fault, Canceled: true}
	}
	return Response{Failure: failure, Fault: fault}
}

// send sends a request and returns the connection used and the head of the response. If the
// receiver closes a reused connection before it answers, send retries once on a new connection.
func (c *Client) send(cancel *Canceler, by Caller, address string, request []byte, deadline time.Time) (*conn, head, error) {
	for again := false; ; again = true {
		var conn *conn
		if !again {
			conn = c.pool.take(address, deadline)
		}
		reused := conn != nil
		if !reused {
			var err error
			if conn, err = c.connect(cancel, by, address, deadline); err != nil {
				return nil, head{}, err
			}
		}
		if !cancel.setCloser(conn.transport) {
			c.pool.drop(conn)
			return nil, head{}, errCanceled
		}
		response, err := conn.exchange(request)
		if err == nil && !isStatus(response.status) {
			err = errProtocol
		}
		if err == nil {
			return conn, response, nil
		}
		silent := !conn.limited.gotBytes && broken(err)
		c.done(cancel, conn, false)
		if !reused || !silent {
			return nil, head{}, err
		}
	}
}

// connect returns a new connection. If the host has run out of a resource such as file
// descriptors, connect closes idle connections and tries again.
func (c *Client) connect(cancel *Canceler, by Caller, address string, deadline time.Time) (*conn, error) {
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
	_ = conn.SetDeadline(deadline) // fails only on a closed connection, which the exchange will report
	return conn, nil
}

// dialTLS dials and does the TLS handshake. Some receivers abort a handshake in which the client
// offers to resume a session. After such a failure, dialTLS dials again and offers no session.
func (c *Client) dialTLS(ctx context.Context, by Caller, address string) (*conn, error) {
	resumption := &session{all: &c.sessions, address: address}
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
		config.ClientSessionCache = resumption
		secure := tls.Client(transport, config)
		if err = secure.HandshakeContext(ctx); err == nil {
			conn := newConn(address, secure, transport)
			conn.session = resumption
			resumption.large = resumption.large || isLarge(secure.ConnectionState())
			return conn, nil
		}
		_ = raw.Close()
		if !resumption.offered || ctx.Err() != nil {
			return nil, classifyHandshake(err)
		}
		resumption.forget()
	}
}

// done returns a connection to the pool, or closes it if it cannot be used for another request.
func (c *Client) done(cancel *Canceler, conn *conn, whole bool) {
	active := cancel.setCloser(nil)
	if conn.end(whole) && active && conn.isFrugal() && conn.transport.canPoll() {
		c.pool.put(conn)
	} else {
		c.pool.drop(conn)
	}
}
