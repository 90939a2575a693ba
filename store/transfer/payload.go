package transfer

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// payloads maps each kind to the parser of its payload.
var payloads = map[Kind]func([]byte) (Record, error){
	KindKey:        parse[keyPayload],
	KindWebhook:    parse[webhookPayload],
	KindRequest:    parse[requestPayload],
	KindAlert:      parse[alertPayload],
	KindDedupKey:   parse[dedupKeyPayload],
	KindFileScan:   parse[fileScanPayload],
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
		return json.Marshal(payloadOfKey(r))
	case *Webhook:
		return json.Marshal(payloadOfWebhook(r))
	case *Request:
		return json.Marshal(requestPayload{r.Account, r.Webhook, r.IdempotencyKey, millis{r.At}, r.Made.ID, hash(r.Made.Fingerprint), r.KeyID})
	case *Alert:
		return json.Marshal(alertPayload{r.Account, string(r.Metric), r.State, r.Due})
	case *DedupKey:
		return json.Marshal(dedupKeyPayload{r.Account, r.Key, millis{r.Until}})
	case *FileScan:
		return json.Marshal(fileScanPayload{r.State})
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

type keyPayload struct {
	Account           string          `json:"account"`
	ID                string          `json:"id"`
	Name              string          `json:"name"`
	Scopes            []string        `json:"scopes"`
	CreatedAt         millis          `json:"createdAt,omitzero"`
	ExpiresAt         millis          `json:"expiresAt,omitzero"`
	Hash              hash            `json:"hash"`
	Previous          hash            `json:"previous,omitzero"`
	PreviousExpiresAt millis          `json:"previousExpiresAt,omitzero"`
	LastUsedAt        millis          `json:"lastUsedAt,omitzero"`
	UsedAt            millis          `json:"usedAt,omitzero"`
	PreviousUsedAt    millis          `json:"previousUsedAt,omitzero"`
	Hint              string          `json:"hint,omitempty"`
	PreviousHint      string          `json:"previousHint,omitempty"`
	CreatedByKind     audit.ActorKind `json:"createdByKind,omitempty"`
	CreatedByID       string          `json:"createdById,omitempty"`
}

func payloadOfKey(r *Key) keyPayload {
	return keyPayload{
		r.Account, r.ID, r.Name, r.Scopes.Names(), millis{r.CreatedAt}, millis{r.ExpiresAt}, hash(r.Hash.Sum), hash(r.Previous.Sum),
		millis{r.PreviousExpiresAt}, millis{r.LastUsedAt}, millis{r.UsedAt}, millis{r.PreviousUsedAt}, r.Hint, r.PreviousHint,
		r.CreatedBy.Kind, r.CreatedBy.ID,
	}
}

func (p keyPayload) record() (Record, error) {
	set, err := scopes.FromNames(p.Scopes)
	if err != nil {
		return nil, malformed("scopes", "must be names of scopes")
	}
	return &Key{apikeys.Key{
		Account: p.Account, ID: p.ID, Name: p.Name, Scopes: set, CreatedAt: p.CreatedAt.Time, ExpiresAt: p.ExpiresAt.Time,
		Hash: apikeys.Hash{Sum: p.Hash}, Previous: apikeys.Hash{Sum: p.Previous}, PreviousExpiresAt: p.PreviousExpiresAt.Time,
		LastUsedAt: p.LastUsedAt.Time, PreviousUsedAt: p.PreviousUsedAt.Time, Hint: p.Hint, PreviousHint: p.PreviousHint,
		CreatedBy: audit.Actor{Kind: p.CreatedByKind, ID: p.CreatedByID},
	}, p.UsedAt.Time}, nil
}

type webhookPayload struct {
	Account                 string               `json:"account"`
	ID                      string               `json:"id"`
	URL                     string               `json:"url"`
	Events                  []webhooks.EventType `json:"events"`
	PastEvents              []webhooks.EventType `json:"pastEvents,omitempty"`
	Active                  bool                 `json:"active"`
	Held                    bool                 `json:"held,omitempty"`
	OffReason               webhooks.OffReason   `json:"offReason,omitempty"`
	OffAt                   millis               `json:"offAt,omitzero"`
	ProvenAt                millis               `json:"provenAt,omitzero"`
	FailingSince            millis               `json:"failingSince,omitzero"`
	FailingEvent            string               `json:"failingEvent,omitempty"`
	FailedAgain             bool                 `json:"failedAgain,omitempty"`
	WarnedAt                millis               `json:"warnedAt,omitzero"`
	BalanceThreshold        uint64               `json:"balanceThreshold,omitempty"`
	Secret                  string               `json:"secret,omitempty"`
	CreatedAt               millis               `json:"createdAt,omitzero"`
	PreviousSecret          string               `json:"previousSecret,omitempty"`
	PreviousSecretExpiresAt millis               `json:"previousSecretExpiresAt,omitzero"`
}

func payloadOfWebhook(r *Webhook) webhookPayload {
	return webhookPayload{
		r.Account, r.ID, r.URL, r.Events, r.PastEvents, r.Active, r.Held, r.OffReason, millis{r.OffAt}, millis{r.ProvenAt}, millis{r.FailingSince}, r.FailingEvent, r.FailedAgain,
		millis{r.WarnedAt}, uint64(r.BalanceThreshold), r.Secret.Reveal(), millis{r.CreatedAt}, r.PreviousSecret.Reveal(), millis{r.PreviousSecretExpiresAt},
	}
}

func (p webhookPayload) record() (Record, error) {
	secret, err := parseSecret("secret", p.Secret)
	if err != nil {
		return nil, err
	}
	previous, err := parseSecret("previousSecret", p.PreviousSecret)
	if err != nil {
		return nil, err
	}
	return &Webhook{webhooks.Webhook{
		Account: p.Account, ID: p.ID, URL: p.URL, Events: p.Events, PastEvents: p.PastEvents, Held: p.Held,
		WebhookHealth: webhooks.WebhookHealth{
			Active: p.Active, OffReason: p.OffReason, OffAt: p.OffAt.Time, ProvenAt: p.ProvenAt.Time,
			FailingSince: p.FailingSince.Time, FailingEvent: p.FailingEvent, FailedAgain: p.FailedAgain, WarnedAt: p.WarnedAt.Time,
		},
		BalanceThreshold: webhooks.Amount(p.BalanceThreshold), Secret: secret, CreatedAt: p.CreatedAt.Time,
		PreviousSecret: previous, PreviousSecretExpiresAt: p.PreviousSecretExpiresAt.Time,
	}}, nil
}

func parseSecret(field, text string) (signing.Secret, error) {
	if text == "" {
		return signing.Secret{}, nil
	}
	secret, err := signing.ParseSecret(text)
	if err != nil {
		return secret, malformed(field, "must be a signing secret")
	}
	return secret, nil
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
	return &Request{p.Account, p.Webhook, p.IdempotencyKey, p.At.Time, apikeys.DuplicateRequestError{ID: p.ID, Fingerprint: p.Fingerprint}, p.KeyID}, nil
}

type alertPayload struct {
	Account string `json:"account"`
	Metric  string `json:"metric"`
	State   []byte `json:"state"`
	Due     bool   `json:"due,omitempty"`
}

func (p alertPayload) record() (Record, error) {
	return &Alert{p.Account, webhooks.Metric(p.Metric), p.State, p.Due}, nil
}

type dedupKeyPayload struct {
	Account string `json:"account"`
	Key     string `json:"key"`
	Until   millis `json:"until"`
}

func (p dedupKeyPayload) record() (Record, error) {
	return &DedupKey{p.Account, webhooks.DedupKey{Key: p.Key, Until: p.Until.Time}}, nil
}

type fileScanPayload struct {
	State []byte `json:"state"`
}

func (p fileScanPayload) record() (Record, error) { return &FileScan{p.State}, nil }

type recoveryPayload struct {
	Account     string                   `json:"account"`
	ID          string                   `json:"id"`
	WebhookID   string                   `json:"webhookId"`
	States      []webhooks.DeliveryState `json:"states"`
	From        millis                   `json:"from,omitzero"`
	To          millis                   `json:"to,omitzero"`
	CreatedAt   millis                   `json:"createdAt,omitzero"`
	Recovered   int                      `json:"recovered,omitempty"`
	Done        bool                     `json:"done,omitempty"`
	NextEventID string                   `json:"nextEventId,omitempty"`
}

func payloadOfRecovery(r *Recovery) recoveryPayload {
	return recoveryPayload{
		r.Account, r.ID, r.WebhookID, r.States, millis{r.From}, millis{r.To}, millis{r.CreatedAt}, r.Recovered, r.Done, r.NextEventID,
	}
}

func (p recoveryPayload) record() (Record, error) {
	return &Recovery{webhooks.Recovery{
		Account: p.Account, ID: p.ID, WebhookID: p.WebhookID, States: p.States, From: p.From.Time, To: p.To.Time,
		CreatedAt: p.CreatedAt.Time, Recovered: p.Recovered, Done: p.Done,
	}, p.NextEventID}, nil
}
