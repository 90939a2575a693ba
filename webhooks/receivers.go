package webhooks

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// Header values of all requests.
const (
	contentType = "application/json; charset=utf-8"
	userAgent   = "storageapi-webhooks/1" // default

	maxUserAgent = 256
)

var errNoSecret = outbound.Failure{Kind: outbound.KindInternal, Text: "no usable signing secret"}

// A receiver holds the target and signer for a webhook. It is valid until the webhook's URL,
// headers, signing secrets or signatures change.
type receiver struct {
	webhook  atomic.Pointer[Webhook] // the latest webhook state for which r is known to be valid
	previous signing.Secret          // zero if the previous secret does not sign
	signer   *signing.Signer
	target   *outbound.Target
}

func newReceiver(webhook *Webhook, header, agent string, at time.Time) (*receiver, error) {
	secrets, previous := []signing.Secret{webhook.Secret}, previousSecretAt(webhook, at)
	if !previous.IsZero() {
		secrets = append(secrets, previous)
	}
	signer, err := signerOf(webhook, header, secrets...)
	if err != nil {
		return nil, errNoSecret
	}
	fields := http.Header{"Content-Type": {contentType}, "User-Agent": {agent}}
	for _, h := range webhook.Headers {
		if checkHeader(h, header) == "" { // the record may be imported, and Config may have changed since
			fields[h.Name] = []string{h.Value}
		}
	}
	target, err := outbound.NewTarget(webhook.URL, fields)
	if err != nil {
		return nil, err
	}
	made := &receiver{previous: previous, signer: signer, target: target}
	made.webhook.Store(webhook)
	return made, nil
}

// is reports whether r is still valid for the webhook at the given time.
func (r *receiver) is(webhook *Webhook, at time.Time) bool {
	if last := r.webhook.Load(); last != webhook {
		if !fields.Equal((*listed.Webhook)(last), (*listed.Webhook)(webhook), fields.Sent) {
			return false
		}
		r.webhook.Store(webhook)
	}
	return r.previous.Equal(previousSecretAt(webhook, at))
}

// maxReceivers limits the cached receivers. Each takes about half a KiB. Making a receiver takes
// a quarter of the time of an attempt.
const maxReceivers = 16_384

// receivers caches receivers by webhook ID.
type receivers struct {
	header, agent string // the signature header and the User-Agent

	mu   sync.Mutex
	kept map[string]*receiver
}

// of returns the webhook's receiver at the given time.
func (r *receivers) of(webhook *Webhook, at time.Time) (*receiver, error) {
	r.mu.Lock()
	found := r.kept[webhook.ID]
	r.mu.Unlock()
	if found != nil && found.is(webhook, at) {
		return found, nil
	}
	made, err := newReceiver(webhook, r.header, r.agent, at)
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
		delete(r.kept, id) // removes an arbitrary entry
	}
	r.kept[webhook.ID] = made
	return made, nil
}
