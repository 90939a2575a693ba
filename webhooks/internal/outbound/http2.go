package outbound

import "bufio"

var errHTTP2 = Failure{KindProtocol, "the receiver speaks HTTP/2 only; HTTP/1.1 is needed"}

// isFrame reports whether the received bytes begin with an HTTP/2 SETTINGS or GOAWAY frame for
// the connection. An HTTP/1 response cannot begin with these bytes.
func isFrame(from *bufio.Reader) bool {
	if first, err := from.Peek(1); err != nil || first[0] != 0 {
		return false
	}
	frame, err := from.Peek(9)
	return err == nil && (frame[3] == 4 || frame[3] == 7) && string(frame[5:9]) == "\x00\x00\x00\x00"
}
