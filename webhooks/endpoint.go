package webhooks

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// What all requests say of themselves.
const (
	contentType = "application/json; charset=utf-8"
	userAgent   = "storageapi-webhooks/1"
)

// An endpoint is what the requests to one webhook have in common, for as long as
// its URL and the secrets that sign stay the same.
type endpoint struct {
	webhook  *Webhook       // as it was when this was made
	previous signing.Secret // zero if it does not sign
	signer   *signing.Signer
	header   string // of the signature
	address  string // host and port to dial
	head     []byte // of each request: its first line and the header lines that are the same in all
}

func newEndpoint(webhook *Webhook, header string, at time.Time) (*endpoint, error) {
	secrets, previous := []signing.Secret{webhook.Secret}, webhook.previousSecretAt(at)
	if !previous.IsZero() {
		secrets = append(secrets, previous)
	}
	signer, err := signing.NewSigner(header, secrets...)
	if err != nil {
		return nil, errNoSecret
	}
	request, err := http.NewRequest(http.MethodPost, webhook.URL, nil)
	if err != nil || request.URL.Scheme != "https" || request.URL.Hostname() == "" {
		return nil, errNoURL
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", userAgent)
	var head bytes.Buffer
	if err := request.Write(&head); err != nil { // net/http knows how each part is written
		return nil, errNoURL
	}
	port := request.URL.Port()
	if port == "" {
		port = "443"
	}
	return &endpoint{
		webhook:  webhook,
		previous: previous,
		signer:   signer,
		header:   header,
		address:  net.JoinHostPort(request.URL.Hostname(), port),
		head:     bytes.Replace(bytes.TrimSuffix(head.Bytes(), []byte("\r\n")), []byte("Content-Length: 0\r\n"), nil, 1),
	}, nil
}

func (e *endpoint) is(webhook *Webhook, at time.Time) bool {
	unchanged := e.webhook == webhook || e.webhook.URL == webhook.URL && e.webhook.Secret.Equal(webhook.Secret)
	return unchanged && e.previous.Equal(webhook.previousSecretAt(at))
}

// A request is what is sent in an attempt.
type request struct {
	signatures http.Header
	bytes      []byte
}

var requests = sync.Pool{New: func() any { return &request{signatures: make(http.Header)} }}

// release lets the request be used for another.
func (r *request) release() {
	if cap(r.bytes) <= 4*maxWrite {
		requests.Put(r)
	}
}

// request returns the signed request that brings the event to the endpoint, until
// its release.
func (e *endpoint) request(event *EncodedEvent, at time.Time) *request {
	r := requests.Get().(*request)
	clear(r.signatures)
	e.signer.Sign(r.signatures, event.ID, at, event.Body)
	b := append(r.bytes[:0], e.head...)
	for _, name := range [...]string{signing.HeaderID, signing.HeaderTimestamp, signing.HeaderSignature, e.header} {
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, r.signatures[name][0]...)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(event.Body)), 10)
	b = append(b, "\r\n\r\n"...)
	r.bytes = append(b, event.Body...)
	return r
}

// secrets returns what of the request, and of the webhook it is for, must not be kept.
func (r *request) secrets(webhook *Webhook, header string) []string {
	return []string{webhook.Secret.Reveal(), webhook.PreviousSecret.Reveal(), r.signatures[header][0], r.signatures[signing.HeaderSignature][0]}
}

// maxEndpoints bounds the endpoints kept; each has about half a KiB, and takes as long to
// make as a quarter of an attempt.
const maxEndpoints = 16_384

// endpoints keeps the endpoints of webhooks, by webhook id.
type endpoints struct {
	mu   sync.Mutex
	kept map[string]*endpoint
}

// of returns the webhook's endpoint at that time.
func (e *endpoints) of(webhook *Webhook, header string, at time.Time) (*endpoint, error) {
	e.mu.Lock()
	found := e.kept[webhook.ID]
	e.mu.Unlock()
	if found != nil && found.is(webhook, at) {
		return found, nil
	}
	made, err := newEndpoint(webhook, header, at)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.kept {
		if len(e.kept) < maxEndpoints {
			break
		}
		delete(e.kept, id) // any
	}
	e.kept[webhook.ID] = made
	return made, nil
}
