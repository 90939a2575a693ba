package webhooks

import (
	"net/http"
	"sync"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// What all requests say of themselves.
const (
	contentType = "application/json; charset=utf-8"
	userAgent   = "storageapi-webhooks/1"
)

var errNoSecret = outbound.Failure{Kind: outbound.KindInternal, Text: "no usable signing secret"}

// A receiver is where a webhook's events go and what signs them, for as long as the URL and
// the secrets that sign stay the same.
type receiver struct {
	webhook  *Webhook       // as it was when this was made
	previous signing.Secret // zero if it does not sign
	signer   *signing.Signer
	target   *outbound.Target
}

func newReceiver(webhook *Webhook, header string, at time.Time) (*receiver, error) {
	secrets, previous := []signing.Secret{webhook.Secret}, webhook.previousSecretAt(at)
	if !previous.IsZero() {
		secrets = append(secrets, previous)
	}
	signer, err := signing.NewSigner(header, secrets...)
	if err != nil {
		return nil, errNoSecret
	}
	target, err := outbound.NewTarget(webhook.URL, http.Header{"Content-Type": {contentType}, "User-Agent": {userAgent}})
	if err != nil {
		return nil, err
	}
	return &receiver{webhook: webhook, previous: previous, signer: signer, target: target}, nil
}

func (r *receiver) is(webhook *Webhook, at time.Time) bool {
	unchanged := r.webhook == webhook || r.webhook.URL == webhook.URL && r.webhook.Secret.Equal(webhook.Secret)
	return unchanged && r.previous.Equal(webhook.previousSecretAt(at))
}

// maxReceivers bounds the receivers kept. Each has about half a KiB, and takes a quarter as
// long to make as an attempt takes.
const maxReceivers = 16_384

// receivers keeps the receivers of webhooks, by webhook id. The zero receivers are ready.
type receivers struct {
	mu   sync.Mutex
	kept map[string]*receiver
}

// of returns the webhook's receiver at that time.
func (r *receivers) of(webhook *Webhook, header string, at time.Time) (*receiver, error) {
	r.mu.Lock()
	found := r.kept[webhook.ID]
	r.mu.Unlock()
	if found != nil && found.is(webhook, at) {
		return found, nil
	}
	made, err := newReceiver(webhook, header, at)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil {
		r.kept = make(map[string]*receiver)
	}
	for id := range r.kept {
		if len(r.kept) < maxReceivers {
			break
		}
		delete(r.kept, id) // any
	}
	r.kept[webhook.ID] = made
	return made, nil
}
