package outbound

import (
	"io"
	"net"
	"testing"
)

// A receiver may answer a long request before it has read it, and never read the
// rest. It has answered then, but there is no other exchange on that connection.
func TestAnAnswerBeforeTheRequestIsRead(t *testing.T) {
	for _, size := range []int{maxWrite + 1, 16 * maxWrite} {
		ours, theirs := net.Pipe()
		transport := newTransport(ours)
		c := newConn("host:443", transport, transport)
		go func() {
			_, _ = theirs.Read(make([]byte, 1))
			_, _ = theirs.Write([]byte("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"))
		}()
		answer, err := c.exchange(make([]byte, size))
		if err != nil || answer.status != 413 {
			t.Errorf("got %v, %v", answer, err)
		}
		if c.end(true) {
			t.Error("the connection is to be used again, with half a request on it")
		}
		if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection is open: %v", err)
		}
	}
}
