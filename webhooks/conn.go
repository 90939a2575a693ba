package webhooks

import (
	"bufio"
	"errors"
	"net"
	"time"
)

// A conn is a connection to a receiver, for one exchange at a time of HTTP/1.1. The
// goroutine that makes the attempt reads and writes by itself: a [http.Transport]
// has two more for each connection, and passing a request and its response between
// the three costs as much as all the rest of it.
type conn struct {
	net.Conn // TLS, but in tests
	wire     *wire
	address  string // host and port
	incoming incoming
	reader   *bufio.Reader // of incoming
	used     bool          // for an exchange before
	idle     time.Time     // since when

	sending chan error // gets what came of sending a long request; nil: it is sent
}

func newConn(address string, said net.Conn, wire *wire) *conn {
	c := &conn{Conn: said, wire: wire, address: address}
	c.incoming.Conn = said
	c.reader = bufio.NewReader(&c.incoming)
	return c
}

// An incoming is what a receiver says, as far as that is bounded.
type incoming struct {
	net.Conn
	left int  // bytes that it may still say
	some bool // it said something
}

func (in *incoming) Read(b []byte) (int, error) {
	if in.left == 0 {
		return 0, errProtocol
	}
	n, err := in.Conn.Read(b[:min(len(b), in.left)])
	in.left -= n
	in.some = in.some || n > 0
	return n, err
}

// errNotQuiet is the failure of an exchange that was not begun: the connection is
// closed, or its receiver has said something unasked, which would be taken for the
// response.
var errNotQuiet = errors.New("the connection is not quiet")

// exchange sends a request and returns its final response, whose body is yet to be
// read: until the deadline, too. The request must not change until end.
func (c *conn) exchange(request []byte, deadline time.Time) (response, error) {
	c.incoming.left, c.incoming.some = maxResponseHeader, false
	if err := c.SetDeadline(deadline); err != nil {
		return response{}, err
	}
	if err := c.ask(request); err != nil {
		return response{}, err
	}
	answer, err := readHead(c.reader)
	c.incoming.left = c.reader.Size() + maxResponseBody // for the body and what frames it
	return answer, err
}

// ask sends a request, and, on a connection that was used before, waits for something
// to come.
func (c *conn) ask(request []byte) error {
	if !c.used {
		return c.send(request)
	}
	c.wire.ask = func() error { return c.send(request) }
	_, err := c.reader.Peek(1)
	if c.wire.ask != nil {
		return errNotQuiet
	}
	return err
}

// maxWrite is how long a request is, in bytes, that a connection takes without
// waiting for the receiver to read.
const maxWrite = 16 << 10

// send sends a request, or begins to if it is long.
func (c *conn) send(request []byte) error {
	if len(request) <= maxWrite {
		_, err := c.Write(request)
		return err
	}
	// The receiver may answer before it has read all, and read no more then.
	sending := make(chan error, 1)
	c.sending = sending
	go func() {
		_, err := c.Write(request)
		sending <- err
	}()
	return nil
}

// end ends an exchange, and reports whether there can be another: its request was
// sent and its response read, all of both.
func (c *conn) end(whole bool) bool {
	if c.sending != nil {
		select {
		case err := <-c.sending:
			whole = whole && err == nil
		default:
			whole = false
			_ = c.wire.Close()
			<-c.sending
		}
		c.sending = nil
	}
	c.used = true
	return whole
}

// close closes the connection without another word.
func (c *conn) close() { _ = c.wire.Close() }
