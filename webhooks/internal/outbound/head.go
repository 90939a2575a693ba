package outbound

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
)

// A head is the head of a final response. The body is still unread.
type head struct {
	status int
	header http.Header // nil if no field matters
	body   io.Reader   // nil if there is no body
	last   bool        // the connection cannot be reused afterwards
}

// postRequest makes [http.ReadResponse] parse responses to POST.
var postRequest = &http.Request{Method: http.MethodPost}

// readHead reads the head of the final response. It parses plain heads itself, because almost all
// heads are plain and net/http allocates a dozen objects for each head. It leaves other heads to
// net/http.
func readHead(from *bufio.Reader) (head, error) {
	for {
		switch _, err := from.Peek(1); err {
		case nil:
		case io.EOF:
			return head{}, io.ErrUnexpectedEOF
		default:
			return head{}, err
		}
		received, _ := from.Peek(from.Buffered())
		if r, size := plain(received, from); size > 0 {
			_, err := from.Discard(size)
			return r, err
		}
		if isFrame(from) {
			return head{}, errHTTP2
		}
		full, err := http.ReadResponse(from, postRequest)
		if err != nil {
			return head{}, err
		}
		code := full.StatusCode
		if code >= 100 && code <= 199 && code != http.StatusSwitchingProtocols {
			continue
		}
		// A 101 response is followed by another protocol, which has no end. Statuses below 100 are
		// undefined.
		r := head{status: code, header: full.Header, last: full.Close || code <= 199}
		if full.Body != http.NoBody {
			r.body = full.Body
		}
		return r, nil
	}
}

// plain parses a plain head and returns its size in bytes, or 0 if received does not begin with a
// plain head. A plain head is complete, uses HTTP/1.1, has a 2xx status, gives the length of its
// body, and has no other field that matters.
func plain(received []byte, from *bufio.Reader) (r head, size int) {
	end := bytes.Index(received, []byte("\r\n\r\n"))
	if end < 0 {
		return head{}, 0
	}
	line, rest, _ := bytes.Cut(received[:end], []byte("\r\n"))
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
			if stated { // repeated, even if the first value was invalid
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

// decimal parses a number of up to 9 digits. It returns -1 for anything else.
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

// isWord reports whether a field name consists of letters, digits and hyphens only.
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

// A sized reads a body of known length.
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
