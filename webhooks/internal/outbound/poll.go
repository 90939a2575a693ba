package outbound

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// A transport is what a connection goes over, beneath TLS.
type transport struct {
	net.Conn
	raw     syscall.RawConn // nil where a read cannot but wait
	polling bool            // reads return what has come, or os.ErrDeadlineExceeded at once
	polled  polled
}

// polled is a read of raw: here, and not in a closure, for there is one in each exchange.
type polled struct {
	read func(fd uintptr) (done bool) // into b
	b    []byte
	n    int
	err  error
}

func newTransport(conn net.Conn) *transport {
	t := &transport{Conn: conn, raw: rawConn(conn)}
	t.polled.read = t.polled.readOnce
	return t
}

func (t *transport) canPoll() bool { return t.raw != nil }

func (t *transport) Read(b []byte) (int, error) {
	if t.polling && t.canPoll() {
		return t.poll(b)
	}
	return t.Conn.Read(b)
}

// isQuiet reports whether nothing has come on a connection that was kept: neither its end,
// nor bytes that would be taken for the next response. It makes the connection ready until
// the deadline. It reads through TLS, which may hold what has come already, and which goes
// on after a temporary error such as that of a deadline.
//
// The request is written after this read, not from within it. That would save a system
// call in each exchange, which is too little to be measured in deliveries a second.
func (c *conn) isQuiet(deadline time.Time) bool {
	if c.SetDeadline(deadline) != nil {
		return false
	}
	c.wake()
	if !c.transport.canPoll() { // in tests only
		return true
	}
	c.limited.left = maxResponseHeader
	c.transport.polling = true
	_, err := c.reader.Peek(1)
	c.transport.polling = false
	return errors.Is(err, os.ErrDeadlineExceeded)
}
