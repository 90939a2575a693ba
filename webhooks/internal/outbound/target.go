package outbound

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// A Target is where requests go, with what they have in common.
type Target struct {
	address string // host and port
	head    []byte // of each request: its first line, and the fields that are the same in all
}

// NewTarget returns the target of an https URL. Each request to it has the header.
func NewTarget(url string, header http.Header) (*Target, error) {
	request, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil || request.URL.Scheme != "https" || request.URL.Hostname() == "" {
		return nil, errNoURL
	}
	request.Header = header
	var head bytes.Buffer
	if err := request.Write(&head); err != nil { // net/http knows how each part is written
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

// A message is a request as it is sent.
type message struct{ bytes []byte }

var messages = sync.Pool{New: func() any { return new(message) }}

// compose returns the request that brings the body to the target, until its release.
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

// release lets the message be used for another.
func (m *message) release() {
	if cap(m.bytes) <= 4*maxWrite {
		messages.Put(m)
	}
}
