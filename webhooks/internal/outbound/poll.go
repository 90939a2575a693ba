package outbound

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// A transport is the connection below TLS.
type transport struct {
	net.Conn
	raw     syscall.RawConn // nil if non-blocking reads are not possible
	polling bool            // Read returns os.ErrDeadlineExceeded instead of blocking
	polled  polled
}

// polled holds the arguments and results of a non-blocking read. A closure would be allocated in
// each exchange.
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

// isQuiet reports whether an idle connection is open and has received no bytes, which would be
// mistaken for the next response. It wakes the connection and sets its deadline. It reads through
// TLS, because TLS may have buffered bytes. TLS survives a temporary error such as a timeout.
//
// Writing the request from within this read would save a system call per exchange, but no
// measurable time.
func (c *conn) isQuiet(deadline time.Time) bool {
	if c.SetDeadline(deadline) != nil {
		return false
	}
	c.wake()
	if !c.transport.canPoll() { // in tests only: done drops such connections
		return true
	}
	c.limited.left = maxResponseHeader
	c.transport.polling = true
	_, err := c.reader.Peek(1)
	c.transport.polling = false
	return errors.Is(err, os.ErrDeadlineExceeded)
}
