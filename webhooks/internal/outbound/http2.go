package outbound

import (
	"bufio"
	"crypto/tls"
	"net"
	"time"
)

// errHTTP2 is why a receiver cannot be sent to that has no HTTP/1.1.
var errHTTP2 = Failure{KindProtocol, "the receiver speaks HTTP/2 only; HTTP/1.1 is needed"}

// isForHTTP2 reports whether a new connection broke, without a word, because its
// receiver has HTTP/2 only. Such receivers mostly say so in the handshake, or answer by
// a frame; there are those that just close the connection. Of one that did not choose
// HTTP/1.1 when it was offered it asks on another connection whether it chooses HTTP/2.
func (c *Client) isForHTTP2(cancel *Canceler, by caller, conn *conn, deadline time.Time) bool {
	secure, isTLS := conn.Conn.(*tls.Conn)
	if !isTLS || secure.ConnectionState().NegotiatedProtocol != "" {
		return false
	}
	ctx, release := cancel.until(deadline)
	defer release()
	raw, err := c.dial(ctx, by, conn.address)
	if err != nil {
		return false
	}
	defer func() { _ = raw.Close() }()
	config := c.tls.Clone()
	config.ServerName, _, _ = net.SplitHostPort(conn.address)
	config.NextProtos = []string{"h2"}
	asked := tls.Client(raw, config)
	return asked.HandshakeContext(ctx) == nil && asked.ConnectionState().NegotiatedProtocol == "h2"
}

// isFrame reports whether what comes begins with a frame of HTTP/2 that is of the
// whole connection: SETTINGS or GOAWAY. It is not HTTP/1 then.
func isFrame(from *bufio.Reader) bool {
	if first, err := from.Peek(1); err != nil || first[0] != 0 {
		return false
	}
	frame, err := from.Peek(9)
	return err == nil && (frame[3] == 4 || frame[3] == 7) && string(frame[5:9]) == "\x00\x00\x00\x00"
}
