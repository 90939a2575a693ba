package outbound

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
)

// A head is the head of a final response, whose body is yet to be read.
type head struct {
	status int
	header http.Header // nil: nothing in it matters
	body   io.Reader   // nil: there is none
	last   bool        // the connection cannot be used after it
}

// posted tells http.ReadResponse to what the responses are.
var posted = &http.Request{Method: http.MethodPost}

// readHead reads the head of the final response. Almost all heads are plain; net/http,
// which understands the others too, allocates a dozen objects for each.
func readHead(from *bufio.Reader) (head, error) {
	for {
		switch _, err := from.Peek(1); err {
		case nil:
		case io.EOF:
			return head{}, io.ErrUnexpectedEOF
		default:
			return head{}, err
		}
		came, _ := from.Peek(from.Buffered())
		if r, size := plain(came, from); size > 0 {
			_, err := from.Discard(size)
			return r, err
		}
		if isFrame(from) {
			return head{}, errHTTP2
		}
		full, err := http.ReadResponse(from, posted)
		if err != nil {
			return head{}, err
		}
		code := full.StatusCode
		if code >= 100 && code <= 199 && code != http.StatusSwitchingProtocols {
			continue
		}
		// What follows 101 is another protocol, and has no end; what a status below 100
		// means for what follows is not known.
		r := head{status: code, header: full.Header, last: full.Close || code <= 199}
		if full.Body != http.NoBody {
			r.body = full.Body
		}
		return r, nil
	}
}

// plain returns the head that has come, and its size, if it is plain: whole, of HTTP/1.1, a
// success, its body's length stated, and nothing else in it that matters. Size is 0 for
// any other.
func plain(came []byte, from *bufio.Reader) (r head, size int) {
	end := bytes.Index(came, []byte("\r\n\r\n"))
	if end < 0 {
		return head{}, 0
	}
	line, rest, _ := bytes.Cut(came[:end], []byte("\r\n"))
	code, isPlain := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	code, reason, _ := bytes.Cut(code, []byte(" "))
	if !isPlain || len(code) != 3 || code[0] != '2' || !isPrintable(reason) {
		return head{}, 0
	}
	r.status = decimal(code)
	length, stated := -1, r.status == http.StatusNoContent
	if stated {
		length = 0
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, isPlain := bytes.Cut(line, []byte(":"))
		switch {
		case !isPlain || !isWord(name) || !isPrintable(value):
			return head{}, 0
		case bytes.EqualFold(name, []byte("Content-Length")):
			if stated { // also if it was stated badly
				return head{}, 0
			}
			length, stated = decimal(bytes.Trim(value, " ")), true
		case bytes.EqualFold(name, []byte("Transfer-Encoding")), bytes.EqualFold(name, []byte("Content-Encoding")), bytes.EqualFold(name, []byte("Connection")):
			return head{}, 0
		}
	}
	if length < 0 || r.status < 0 {
		return head{}, 0
	}
	if length > 0 {
		r.body = &sized{from, length}
	}
	return r, end + len("\r\n\r\n")
}

// decimal returns the number that up to 9 digits say, or -1.
func decimal(digits []byte) (n int) {
	if len(digits) == 0 || len(digits) > 9 {
		return -1
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// isWord reports whether the name of a header is made of letters, digits and hyphens.
func isWord(name []byte) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return len(name) > 0
}

func isPrintable(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// A sized is a body of a stated length.
type sized struct {
	from *bufio.Reader
	left int
}

func (s *sized) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.from.Read(b[:min(len(b), s.left)])
	s.left -= n
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
