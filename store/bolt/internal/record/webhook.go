package record

import (
	"fmt"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// EncodeWebhook returns the record of a webhook. It seals the webhook's secrets with key. The
// record omits the account and ID, which are the row's key. To replace a record, append its
// [WebhookFields].
func EncodeWebhook(w *driver.Webhook, key *signing.DataKey) []byte {
	secret, previous := key.Seal(w.Secret, w.ID), key.Seal(w.PreviousSecret, w.ID)
	headers := key.SealText((*listed.Webhook)(w).HeaderSecrets(), w.ID)
	e := newEncoder(packedSize + len(w.URL) + len(secret) + len(previous) + len(headers) + 32*(len(w.Events)+len(w.PastEvents)))
	coder{to: &e}.webhook(w, &secret, &previous, &headers)
	return fields.Pack(e, (*listed.Webhook)(w))
}

// DecodeWebhook decodes the webhook stored under account and id. If its secrets cannot be
// decrypted, the error wraps both [ErrCorrupt] and the error returned by key.
func DecodeWebhook(account, id string, record []byte, key *signing.DataKey) (driver.Webhook, error) {
	w, err := InspectWebhook(account, id, record, key)
	if err != nil {
		return driver.Webhook{}, err
	}
	return w, nil
}

// InspectWebhook is like DecodeWebhook, but if the secrets cannot be opened, it also returns the
// rest of the webhook.
func InspectWebhook(account, id string, record []byte, key *signing.DataKey) (w driver.Webhook, err error) {
	d := newDecoder(record)
	d.text = string(record)
	w.Account, w.ID = account, id
	var secret, previous, headers []byte // sealed
	coder{from: d}.webhook(&w, &secret, &previous, &headers)
	if err := d.err(); err != nil {
		return driver.Webhook{}, err
	}
	packed := fields.Unpacker(d.text[len(d.text)-len(d.rest):])
	for packed.More() {
		(*listed.Webhook)(&w).Fields(&packed)
	}
	if err := packed.Err(); err != nil {
		return driver.Webhook{}, unreadable(err)
	}
	if w.Secret, err = key.Open(secret, id); err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if w.PreviousSecret, err = key.Open(previous, id); err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	text, err := key.OpenText(headers, id)
	if err == nil {
		err = (*listed.Webhook)(&w).SetHeaderSecrets(text)
	}
	if err != nil {
		return w, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return w, nil
}

// webhook encodes the fields that [listed.Webhook.Fields] marks as Placed, with sealed secrets.
func (c coder) webhook(w *driver.Webhook, secret, previous, headers *[]byte) {
	number(c, &w.Version)
	c.time(&w.FailingSince)
	c.time(&w.WarnedAt)
	c.bool(&w.Active)
	text(c, &w.OffReason)
	c.time(&w.OffAt)
	c.bool(&w.Held)
	texts(c, &w.Events)
	c.time(&w.CreatedAt)
	text(c, &w.URL)
	c.bytes(secret)
	c.bytes(previous)
	c.time(&w.ProvenAt)
	text(c, &w.FailingEvent)
	c.bool(&w.FailedAgain)
	c.bytes(headers)
	c.time(&w.PausedUntil)
}

// WebhookVersion returns the version of a webhook's record, or 0 if record is nil.
func WebhookVersion(record []byte) uint64 {
	d := newDecoder(record)
	return d.uint()
}

// WebhookFields returns the fields of a webhook's record that this version does not know.
func WebhookFields(record []byte) []byte {
	var w driver.Webhook
	d := newDecoder(record)
	var sealed []byte
	coder{from: d}.webhook(&w, &sealed, &sealed, &sealed)
	return fields.Unknown(nil, string(d.rest), (*listed.Webhook)(&w))
}
