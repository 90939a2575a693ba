package transfer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/driver"
)

// payloads maps each kind to the parser of its payload.
var payloads = map[Kind]func([]byte) (Record, error){
	KindKey:        parseKey,
	KindWebhook:    parseWebhook,
	KindRequest:    parse[requestPayload],
	KindAlert:      parse[alertPayload],
	KindDedupKey:   parse[dedupKeyPayload],
	KindScan:       parse[scanPayload],
	KindEvent:      parse[eventPayload],
	KindRecovery:   parse[recoveryPayload],
	KindAuditEntry: parse[entryPayload],
}

// A payload is the JSON form of a record. Its fields must never be renamed.
type payload interface{ record() (Record, error) }

func parse[P payload](b []byte) (Record, error) {
	var p P
	if err := decode(b, &p); err != nil {
		return nil, err
	}
	return p.record()
}

func encode(r Record) ([]byte, error) {
	switch r := r.(type) {
	case *Key:
		return fields.JSON((*listedKey)(r), 0)
	case *Webhook:
		return fields.JSON((*listed.Webhook)(&r.Webhook), 0)
	case *Request:
		return json.Marshal(requestPayload{r.Account, r.Webhook, r.IdempotencyKey, millis{r.At}, r.Made.ID, hash(r.Made.Fingerprint), r.KeyID})
	case *Alert:
		return json.Marshal(alertPayload{r.Account, r.Series, r.State, r.Due})
	case *DedupKey:
		return json.Marshal(dedupKeyPayload{r.Account, r.Key, millis{r.Until}})
	case *Scan:
		return json.Marshal(scanPayload{r.State})
	case *Event:
		return json.Marshal(payloadOfEvent(r))
	case *Recovery:
		return json.Marshal(payloadOfRecovery(r))
	case *AuditEntry:
		return json.Marshal(payloadOfAuditEntry(r))
	}
	return nil, fieldError("unknown record type")
}

// millis is a time in Unix milliseconds; the zero time is omitted.
type millis struct{ time.Time }

func (m millis) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, m.UnixMilli(), 10), nil }

func (m *millis) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return fieldError("time must be a whole number of milliseconds")
	}
	m.Time = time.UnixMilli(n).UTC()
	return nil
}

// A hash is 32 bytes in hexadecimal; the zero hash is omitted.
type hash [32]byte

func (h hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

func (h *hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fieldError("hash must be 64 hexadecimal digits")
	}
	if _, err := hex.Decode(h[:], b); err != nil {
		return fieldError("hash must be 64 hexadecimal digits")
	}
	return nil
}

func parseKey(b []byte) (Record, error) {
	r := new(Key)
	if err := fields.FromJSON(b, (*listedKey)(r)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return r, nil
}

func parseWebhook(b []byte) (Record, error) {
	r := new(Webhook)
	if err := fields.FromJSON(b, (*listed.Webhook)(&r.Webhook)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return r, nil
}

type requestPayload struct {
	Account        string `json:"account"`
	Webhook        bool   `json:"webhook,omitempty"`
	IdempotencyKey string `json:"idempotencyKey"`
	At             millis `json:"at,omitzero"`
	ID             string `json:"id"`
	Fingerprint    hash   `json:"fingerprint,omitzero"`
	KeyID          string `json:"keyId,omitempty"`
}

func (p requestPayload) record() (Record, error) {
	return &Request{p.Account, p.Webhook, p.IdempotencyKey, p.At.Time, driver.DuplicateRequestError{ID: p.ID, Fingerprint: p.Fingerprint}, p.KeyID}, nil
}

type alertPayload struct {
	Account string `json:"account"`
	Series  string `json:"series"`
	State   []byte `json:"state"`
	Due     bool   `json:"due,omitempty"`
}

func (p alertPayload) record() (Record, error) {
	return &Alert{p.Account, p.Series, p.State, p.Due}, nil
}

type dedupKeyPayload struct {
	Account string `json:"account"`
	Key     string `json:"key"`
	Until   millis `json:"until"`
}

func (p dedupKeyPayload) record() (Record, error) {
	return &DedupKey{p.Account, driver.DedupKey{Key: p.Key, Until: p.Until.Time}}, nil
}

type scanPayload struct {
	State []byte `json:"state"`
}

func (p scanPayload) record() (Record, error) { return &Scan{p.State}, nil }

type recoveryPayload struct {
	Account     string                 `json:"account"`
	ID          string                 `json:"id"`
	WebhookID   string                 `json:"webhookId"`
	States      []driver.DeliveryState `json:"states"`
	From        millis                 `json:"from,omitzero"`
	To          millis                 `json:"to,omitzero"`
	CreatedAt   millis                 `json:"createdAt,omitzero"`
	Recovered   int                    `json:"recovered,omitempty"`
	Done        bool                   `json:"done,omitempty"`
	NextEventID string                 `json:"nextEventId,omitempty"`
}

func payloadOfRecovery(r *Recovery) recoveryPayload {
	return recoveryPayload{
		r.Account, r.ID, r.WebhookID, r.States, millis{r.From}, millis{r.To}, millis{r.CreatedAt}, r.Recovered, r.Done, r.NextEventID,
	}
}

func (p recoveryPayload) record() (Record, error) {
	return &Recovery{driver.Recovery{
		Account: p.Account, ID: p.ID, WebhookID: p.WebhookID, States: p.States, From: p.From.Time, To: p.To.Time,
		CreatedAt: p.CreatedAt.Time, Recovered: p.Recovered, Done: p.Done,
	}, p.NextEventID}, nil
}
