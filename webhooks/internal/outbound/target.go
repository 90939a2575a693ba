package outbound

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// A Target is a receiver's address and the part of the request head that is the same in all
// requests.
type Target struct {
	address string // host:port
	head    []byte // the request line and the common header fields
}

// NewTarget returns the target for an https URL. Each request to it carries header.
func NewTarget(url string, header http.Header) (*Target, error) {
	request, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil || request.URL.Scheme != "https" || request.URL.Hostname() == "" {
		return nil, errNoURL
	}
	request.Header = header
	var head bytes.Buffer
	if err := request.Write(&head); err != nil {
		return nil, errNoURL
	}
	port := request.URL.Port()
	if port == "" {
		port = "443"
	}
	return &Target{
		address: net.JoinHostPort(request.URL.Hostname(), port),
		head:    bytes.Replace(bytes.TrimSuffix(head.Bytes(), []byte("\r\n")), []byte("Content-Length: 0\r\n"), nil, 1),
	}, nil
}

// A message is an encoded request. Its buffer is pooled.
type message struct{ bytes []byte }

var messages = sync.Pool{New: func() any { return new(message) }}

// compose encodes a request. The message must not be used after release.
func compose(target *Target, header []Field, body []byte) *message {
	m := messages.Get().(*message)
	b := append(m.bytes[:0], target.head...)
	for _, field := range header {
		b = append(b, field.Name...)
		b = append(b, ": "...)
		b = append(b, field.Value...)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	m.bytes = append(b, body...)
	return m
}

// release returns the message's buffer to the pool, unless it has grown large.
func (m *message) release() {
	if cap(m.bytes) <= 4*maxWrite {
		messages.Put(m)
	}
}
