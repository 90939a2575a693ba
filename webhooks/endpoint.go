package webhooks

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// An endpoint is what the requests to one webhook have in common, for as long as
// its URL and the secrets that sign stay the same.
type endpoint struct {
	url              string
	secret, previous signing.Secret // previous is zero if it does not sign
	signer           *signing.Signer
	template         *http.Request
}

// Header values that all requests have.
var (
	contentType = []string{"application/json; charset=utf-8"}
	userAgent   = []string{"storageapi-webhooks/1"}
)

func newEndpoint(webhook *Webhook, header string, at time.Time) (*endpoint, error) {
	secrets, previous := []signing.Secret{webhook.Secret}, webhook.previousSecretAt(at)
	if !previous.IsZero() {
		secrets = append(secrets, previous)
	}
	signer, err := signing.NewSigner(header, secrets...)
	if err != nil {
		return nil, errNoSecret
	}
	template, err := http.NewRequest(http.MethodPost, webhook.URL, nil)
	if err != nil || template.URL.Scheme != "https" || template.URL.Hostname() == "" {
		return nil, errNoURL
	}
	return &endpoint{url: webhook.URL, secret: webhook.Secret, previous: previous, signer: signer, template: template}, nil
}

func (e *endpoint) is(webhook *Webhook, at time.Time) bool {
	return e.url == webhook.URL && e.secret.Equal(webhook.Secret) && e.previous.Equal(webhook.previousSecretAt(at))
}

// request returns the signed request that brings the event to the endpoint.
func (e *endpoint) request(ctx context.Context, event *Envelope, at time.Time) *http.Request {
	request := e.template.WithContext(ctx)
	request.Header = http.Header{
		"Content-Type": contentType,
		"User-Agent":   userAgent,
		// Not sent, since it has no value, but it lets the transport send again
		// on a new connection what an idle one was closed under; webhook-id is
		// the same.
		"X-Idempotency-Key": nil,
	}
	e.signer.Sign(request.Header, event.ID, at, event.Body)
	request.ContentLength = int64(len(event.Body))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(event.Body)), nil }
	request.Body, _ = request.GetBody()
	return request
}

// maxEndpoints bounds the endpoints kept; each has about 2 KiB.
const maxEndpoints = 4096

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
