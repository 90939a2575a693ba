package record

import (
	"encoding/binary"
	"fmt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// EncodeWebhook returns the record of a webhook, whose secrets it seals with key. The record omits the account and ID, which are the row's key. To replace a record, append
// its [WebhookFields].
func EncodeWebhook(w *webhooks.Webhook, key *signing.DataKey) []byte {
	secret, previous := key.Seal(w.Secret, w.ID), key.Seal(w.PreviousSecret, w.ID)
	e := newEncoder(72 + len(w.URL) + len(secret) + len(previous) + 32*(len(w.Events)+len(w.PastEvents)))
	coder{to: &e}.webhook(w, &secret, &previous)
	if w.Held {
		e.field(webhookHeld, 1)
	}
	if !w.OffAt.IsZero() {
		e.field(webhookOffAt, binary.BigEndian.AppendUint64(nil, fixedTime(w.OffAt))...)
	}
	return e
}

const (
	webhookHeld  = 1 // odd: a version that does not know it must not send
	webhookOffAt = 4
)

// DecodeWebhook decodes the webhook stored under account and id. If its secrets cannot be opened,
// the error wraps [ErrCorrupt] and the error of key.
func DecodeWebhook(account, id string, record []byte, key *signing.DataKey) (webhooks.Webhook, error) {
	w, err := InspectWebhook(account, id, record, key)
	if err != nil {
		return webhooks.Webhook{}, err
	}
	return w, nil
}

// InspectWebhook is like DecodeWebhook, but returns the rest of a webhook whose secrets cannot be
// opened.
func InspectWebhook(account, id string, record []byte, key *signing.DataKey) (w webhooks.Webhook, err error) {
	d := newDecoder(record)
	w.Account, w.ID = account, id
	var secret, previous []byte // sealed
	coder{from: d}.webhook(&w, &secret, &previous)
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
	if w.Secret, err = key.Open(secret, id); err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if w.PreviousSecret, err = key.Open(previous, id); err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return w, nil
}

// webhook encodes the fields that every webhook record has, with sealed secrets.
func (c coder) webhook(w *webhooks.Webhook, secret, previous *[]byte) {
	number(c, &w.Version)
	c.time(&w.FailingSince)
	c.time(&w.WarnedAt)
	c.bool(&w.Active)
	text(c, &w.OffReason)
	texts(c, &w.Events)
	c.time(&w.CreatedAt)
	number(c, &w.BalanceThreshold)
	text(c, &w.URL)
	c.bytes(secret)
	c.bytes(previous)
	c.time(&w.PreviousSecretExpiresAt)
	texts(c, &w.PastEvents)
	c.time(&w.ProvenAt)
	text(c, &w.FailingEvent)
	c.bool(&w.FailedAgain)
}

// WebhookVersion returns the version of a webhook's record, or 0 if record is nil.
func WebhookVersion(record []byte) uint64 {
	d := newDecoder(record)
	return d.uint()
}

// WebhookFields returns the fields of a webhook's record that this version does not know.
func WebhookFields(record []byte) []byte {
	var w webhooks.Webhook
	d := newDecoder(record)
	var sealed []byte
	coder{from: d}.webhook(&w, &sealed, &sealed)
	return unknown(d.rest, webhookHeld, webhookOffAt)
}
