package record

import (
	"encoding/binary"
	"fmt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// EncodeWebhook returns the record of a webhook, its secrets sealed under the first of
// the keys, if there are any. The record does not repeat the account and id that it
// stands under. [WebhookFields] of the record that it replaces are to be added.
func EncodeWebhook(w *webhooks.Webhook, keys *signing.Keyring) []byte {
	secret, previous := keys.Seal(w.Secret, w.ID), keys.Seal(w.PreviousSecret, w.ID)
	e := newEncoder(72 + len(w.URL) + len(secret) + len(previous) + 32*(len(w.Events)+len(w.PastEvents)))
	e.uint(w.Version)
	e.time(w.FailingSince)
	e.time(w.WarnedAt)
	e.bool(w.Active)
	e.string(string(w.OffReason))
	e.eventTypes(w.Events)
	e.time(w.CreatedAt)
	e.uint(uint64(w.BalanceThreshold))
	e.string(w.URL)
	e.string(string(secret))
	e.string(string(previous))
	e.time(w.PreviousSecretExpiresAt)
	e.eventTypes(w.PastEvents)
	e.time(w.ProvenAt)
	e.string(w.FailingEvent)
	e.bool(w.FailedAgain)
	if w.Held {
		e.field(webhookHeld, 1)
	}
	if !w.OffAt.IsZero() {
		e.field(webhookOffAt, binary.BigEndian.AppendUint64(nil, fixedTime(w.OffAt))...)
	}
	return e
}

// The tags of the fields of webhooks.
const (
	webhookHeld  = 1 // odd: a version that does not know it must send nothing
	webhookOffAt = 4
)

// DecodeWebhook decodes the webhook of that account and id. If its secrets cannot be
// opened the error wraps [ErrCorrupt] and what the keys say.
func DecodeWebhook(account, id string, record []byte, keys *signing.Keyring) (webhooks.Webhook, error) {
	w, err := InspectWebhook(account, id, record, keys)
	if err != nil {
		return webhooks.Webhook{}, err
	}
	return w, nil
}

// InspectWebhook is DecodeWebhook, and returns the rest of the webhook where its secrets cannot be opened.
func InspectWebhook(account, id string, record []byte, keys *signing.Keyring) (w webhooks.Webhook, err error) {
	d := newDecoder(record)
	w.Account, w.ID = account, id
	secret, previous := d.webhook(&w)
	d.fields(func(tag uint64, value []byte) bool {
		switch {
		case tag == webhookHeld && len(value) == 1:
			w.Held = value[0] != 0
		case tag == webhookOffAt && len(value) == 8:
			w.OffAt = timeOf(binary.BigEndian.Uint64(value))
		default:
			return false
		}
		return true
	})
	if err := d.err(); err != nil {
		return webhooks.Webhook{}, err
	}
	if w.Secret, err = keys.Open(secret, id); err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if w.PreviousSecret, err = keys.Open(previous, id); err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return w, nil
}

// webhook reads what each record of a webhook has, and returns the secrets as they are sealed.
func (d *decoder) webhook(w *webhooks.Webhook) (secret, previous []byte) {
	w.Version = d.uint()
	w.FailingSince = d.time()
	w.WarnedAt = d.time()
	w.Active = d.bool()
	w.OffReason = webhooks.OffReason(d.string())
	w.Events = d.eventTypes()
	w.CreatedAt = d.time()
	w.BalanceThreshold = webhooks.Amount(d.uint())
	w.URL = d.string()
	secret, previous = d.raw(d.uint()), d.raw(d.uint())
	w.PreviousSecretExpiresAt = d.time()
	w.PastEvents = d.eventTypes()
	w.ProvenAt = d.time()
	w.FailingEvent = d.string()
	w.FailedAgain = d.bool()
	return secret, previous
}

// WebhookVersion returns the version of a webhook's record; 0 if there is no record.
func WebhookVersion(record []byte) uint64 {
	d := newDecoder(record)
	return d.uint()
}

// WebhookFields returns the fields of a webhook's record that this version does not know.
func WebhookFields(record []byte) []byte {
	var w webhooks.Webhook
	d := newDecoder(record)
	d.webhook(&w)
	return unknown(d.rest, webhookHeld, webhookOffAt)
}

func (e *encoder) eventTypes(types []webhooks.EventType) {
	e.uint(uint64(len(types)))
	for _, t := range types {
		e.string(string(t))
	}
}

func (d *decoder) eventTypes() (types []webhooks.EventType) {
	for range d.uint() {
		if d.failed {
			break
		}
		types = append(types, webhooks.EventType(d.string()))
	}
	return types
}
