package outbound

import (
	"io"
	"net"
	"testing"
)

// A receiver may answer a long request early and never read the rest. The answer is returned, but
// the connection cannot be reused.
func TestConn_AnswerBeforeRequestIsRead_IsReturnedAndConnectionClosed(t *testing.T) {
	for _, size := range []int{maxWrite + 1, 16 * maxWrite} {
		local, remote := net.Pipe()
		transport := newTransport(local)
		c := newConn("host:443", transport, transport)
		go func() {
			_, _ = remote.Read(make([]byte, 1))
			_, _ = remote.Write([]byte("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"))
		}()
		answer, err := c.exchange(make([]byte, size))
		if err != nil || answer.status != 413 {
			t.Errorf("%d bytes: got %v, %v; want status 413", size, answer, err)
		}
		if c.end(true) {
			t.Errorf("%d bytes: end = true with half a request sent, want false", size)
		}
		if _, err := remote.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%d bytes: read from the connection: %v, want EOF", size, err)
		}
	}
}
