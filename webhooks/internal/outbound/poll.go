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
	poller  Poller // nil if non-blocking reads are not possible
	polling bool   // Read returns os.ErrDeadlineExceeded instead of blocking
	file    descriptorPoller
}

// A Poller is a connection that can be read without blocking. A connection is kept for later
// requests only if it is a Poller, or has a file descriptor on a system that can poll it.
type Poller interface {
	// Poll reads received bytes. It returns [os.ErrDeadlineExceeded] if there are none.
	Poll(b []byte) (int, error)
}

// A descriptorPoller polls a file descriptor. It holds the arguments and results of a read,
// because a closure would be allocated in each exchange.
type descriptorPoller struct {
	raw  syscall.RawConn
	read func(fd uintptr) (done bool) // into b
	b    []byte
	n    int
	err  error
}

func newTransport(conn net.Conn) *transport {
	t := &transport{Conn: conn}
	if poller, ok := conn.(Poller); ok {
		t.poller = poller
	} else if raw := rawConn(conn); raw != nil {
		t.file.raw, t.file.read = raw, t.file.readOnce
		t.poller = &t.file
	}
	return t
}

func (t *transport) canPoll() bool { return t.poller != nil }

func (t *transport) Read(b []byte) (int, error) {
	if t.polling {
		return t.poller.Poll(b)
	}
	return t.Conn.Read(b)
}

// isQuiet reports whether an idle connection is open and has received no bytes. Received bytes
// would be mistaken for the next response. isQuiet wakes the connection and sets its deadline. It
// reads through TLS, because TLS may have buffered bytes. A temporary error such as a timeout does
// not break the TLS connection.
//
// Writing the request from within this read would save a system call per exchange, but no
// measurable time.
func (c *conn) isQuiet(deadline time.Time) bool {
	if c.SetDeadline(deadline) != nil {
		return false
	}
	c.wake()
	c.limited.left = maxResponseHeader
	c.transport.polling = true
	_, err := c.reader.Peek(1)
	c.transport.polling = false
	return errors.Is(err, os.ErrDeadlineExceeded)
}
