package outbound

import (
	"bufio"
	"net"
	"sync"
)

// A conn is an HTTP/1.1 connection to a receiver that carries one exchange at a time. The goroutine
// that makes the POST also reads and writes the connection. An [http.Transport] has two more
// goroutines per connection, and passing data between the three costs as much as everything else.
type conn struct {
	net.Conn  // TLS, or the transport if requests are plain
	transport *transport
	session   *session // nil without TLS
	address   string   // host:port
	limited   limitedConn
	reader    *bufio.Reader // reads from limited; nil while idle
	place                   // in the pool's lists, while idle
	taken     bool          // taken from the pool, which reserves a place for it
	inUse     bool          // counted in pool.inUse

	sending chan error // result of writing a long request; nil if none is being written
}

func newConn(address string, secure net.Conn, transport *transport) *conn {
	c := &conn{Conn: secure, transport: transport, address: address, limited: limitedConn{Conn: secure}}
	c.wake()
	return c
}

// readers pools the readers of connections: their buffers are a quarter of a connection's memory,
// and an idle connection needs none.
var readers = sync.Pool{New: func() any { return new(bufio.Reader) }}

// wake gives an idle connection a reader.
func (c *conn) wake() {
	c.reader = readers.Get().(*bufio.Reader)
	c.reader.Reset(&c.limited)
}

// rest releases the reader until wake is called. The reader must have no buffered bytes.
func (c *conn) rest() {
	c.reader.Reset(nil)
	readers.Put(c.reader)
	c.reader = nil
}

// A limitedConn limits the number of bytes read.
type limitedConn struct {
	net.Conn
	left     int // bytes still allowed
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

// exchange sends a request and returns the head of the final response. The caller must not
// modify request until end returns.
func (c *conn) exchange(request []byte) (head, error) {
	c.limited.left, c.limited.gotBytes = maxResponseHeader, false
	if err := c.write(request); err != nil {
		return head{}, err
	}
	h, err := readHead(c.reader)
	c.limited.left = c.reader.Size() + maxResponseBody // the body and its chunk framing
	return h, err
}

// maxWrite is the maximum size, in bytes, of a request that can be written without waiting for
// the receiver to read.
const maxWrite = 16 << 10

// write writes a request. It writes a long request in a goroutine, because a receiver may respond
// early and never read the rest.
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

// end ends an exchange and reports whether the connection can be used for another one. This
// requires that the whole request was sent, the whole response was read (whole), and no other bytes
// were received.
func (c *conn) end(whole bool) bool {
	if c.sending != nil {
		select {
		case err := <-c.sending:
			whole = whole && err == nil
		default:
			whole = false
			_ = c.transport.Close()
			<-c.sending //nolint:errcheck // fails because the connection is closed
		}
		c.sending = nil
	}
	return whole && c.reader.Buffered() == 0
}

// isFrugal reports whether the connection uses so little memory that it may be kept.
func (c *conn) isFrugal() bool { return c.session == nil || !c.session.large }

// close closes the connection without a TLS close_notify alert, since writing it could block.
func (c *conn) close() { _ = c.transport.Close() }
