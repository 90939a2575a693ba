package outbound

import (
	"bufio"
	"net"
	"sync"
)

// A conn is a connection to a receiver, for one exchange of HTTP/1.1 at a time. The
// goroutine that makes the POST reads and writes by itself. A [http.Transport] has two
// more for each connection, and passing a request and its response between the three
// costs as much as all the rest.
type conn struct {
	net.Conn  // TLS, except in tests
	transport *transport
	session   *session // nil without TLS
	address   string   // host and port
	limited   limitedConn
	reader    *bufio.Reader // of limited; nil while it rests
	place                   // in the pool, while it is there
	taken     bool          // from the pool, which keeps its place
	inUse     bool          // and counted by the pool as such

	sending chan error // gets the error of sending a long request; nil: it is sent
}

func newConn(address string, secure net.Conn, transport *transport) *conn {
	c := &conn{Conn: secure, transport: transport, address: address, limited: limitedConn{Conn: secure}}
	c.wake()
	return c
}

// readers are those of connections that rest, whose buffers are a quarter of what a
// connection takes.
var readers = sync.Pool{New: func() any { return new(bufio.Reader) }}

// wake makes a connection that rests ready to be read from.
func (c *conn) wake() {
	c.reader = readers.Get().(*bufio.Reader)
	c.reader.Reset(&c.limited)
}

// rest gives back what a connection does not need until wake. All that was read before is
// used up.
func (c *conn) rest() {
	c.reader.Reset(nil)
	readers.Put(c.reader)
	c.reader = nil
}

// A limitedConn bounds how much is read.
type limitedConn struct {
	net.Conn
	left     int // bytes that may still be read
	gotBytes bool
}

func (l *limitedConn) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errProtocol
	}
	n, err := l.Conn.Read(b[:min(len(b), l.left)])
	l.left -= n
	l.gotBytes = l.gotBytes || n > 0
	return n, err
}

// exchange sends a request and returns the head of its final response. The request must
// not change until end.
func (c *conn) exchange(request []byte) (head, error) {
	c.limited.left, c.limited.gotBytes = maxResponseHeader, false
	if err := c.write(request); err != nil {
		return head{}, err
	}
	h, err := readHead(c.reader)
	c.limited.left = c.reader.Size() + maxResponseBody // for the body and what frames it
	return h, err
}

// maxWrite is the longest request, in bytes, that a connection takes without waiting for
// the receiver to read.
const maxWrite = 16 << 10

// write sends a request, or begins to if it is long: the receiver may respond before it
// has read all of it, and read no more then.
func (c *conn) write(request []byte) error {
	if len(request) <= maxWrite {
		_, err := c.Write(request)
		return err
	}
	sending := make(chan error, 1)
	c.sending = sending
	go func() {
		_, err := c.Write(request)
		sending <- err
	}()
	return nil
}

// end ends an exchange, and reports whether there can be another: all of the request was
// sent, all of the response read, and nothing else has come.
func (c *conn) end(whole bool) bool {
	if c.sending != nil {
		select {
		case err := <-c.sending:
			whole = whole && err == nil
		default:
			whole = false
			_ = c.transport.Close()
			<-c.sending //nolint:errcheck // the connection was closed
		}
		c.sending = nil
	}
	return whole && c.reader.Buffered() == 0
}

// isFrugal reports whether the connection takes no more memory than may be kept.
func (c *conn) isFrugal() bool { return c.session == nil || !c.session.large }

// close closes the connection without TLS's farewell, which would have to be written.
func (c *conn) close() { _ = c.transport.Close() }
