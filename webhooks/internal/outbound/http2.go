package outbound

import (
	"bufio"
	"crypto/tls"
	"net"
	"time"
)

var errHTTP2 = Failure{KindProtocol, "the receiver speaks HTTP/2 only; HTTP/1.1 is needed"}

// needsHTTP2 reports whether a receiver closed a new connection without a response because it only
// speaks HTTP/2. Most such receivers refuse in the handshake or answer with an HTTP/2 frame, but
// some just close. To find out, needsHTTP2 offers HTTP/2 on another connection, unless the receiver
// has selected HTTP/1.1 in the first handshake.
func (c *Client) needsHTTP2(cancel *Canceler, by Caller, conn *conn, deadline time.Time) bool {
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
	probe := tls.Client(raw, config)
	return probe.HandshakeContext(ctx) == nil && probe.ConnectionState().NegotiatedProtocol == "h2"
}

// isFrame reports whether the received bytes begin with an HTTP/2 SETTINGS or GOAWAY frame for
// the connection. An HTTP/1 response cannot begin with these bytes.
func isFrame(from *bufio.Reader) bool {
	if first, err := from.Peek(1); err != nil || first[0] != 0 {
		return false
	}
	frame, err := from.Peek(9)
	return err == nil && (frame[3] == 4 || frame[3] == 7) && string(frame[5:9]) == "\x00\x00\x00\x00"
}
