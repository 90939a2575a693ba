package outbound

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Idle connections are few, also if receivers are many.
func TestIdleConnectionsAreBounded(t *testing.T) {
	var pool pool
	defer pool.close()
	var ends []net.Conn
	for i := range 2 * maxIdle {
		ours, theirs := net.Pipe()
		ends = append(ends, theirs)
		transport := newTransport(ours)
		pool.put(newConn(fmt.Sprint("host-", i%(maxIdle/2), ":443"), transport, transport))
	}
	open := 0
	for _, end := range ends {
		_ = end.SetReadDeadline(time.Now().Add(-time.Second))
		if _, err := end.Read(make([]byte, 1)); err != nil && err.Error() != "EOF" {
			open++
		}
	}
	if pool.count != maxIdle || open != maxIdle {
		t.Errorf("%d are kept and %d open, want %d", pool.count, open, maxIdle)
	}
	taken := 0
	for i := range maxIdle / 2 {
		for pool.take(fmt.Sprint("host-", i, ":443"), time.Now().Add(time.Minute)) != nil {
			taken++
		}
	}
	if taken != maxIdle || pool.count != 0 {
		t.Errorf("%d were taken, %d are left", taken, pool.count)
	}
}

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
