package transfer

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/store/driver"
)

// A Kind is the kind of a record.
type Kind string

// The kinds of records, in the order of an export.
const (
	KindKey        Kind = "key"
	KindWebhook    Kind = "webhook"
	KindRequest    Kind = "request"
	KindAlert      Kind = "alert"
	KindDedupKey   Kind = "dedup_key"
	KindScan       Kind = "scan"
	KindEvent      Kind = "event"
	KindRecovery   Kind = "recovery"
	KindAuditEntry Kind = "audit_entry"
)

// A Record is a *Key, *Webhook, *Request, *Alert, *DedupKey, *Scan, *Event, *Recovery or
// *AuditEntry. After an export or import neither the caller nor the store may modify it.
type Record interface {
	Kind() Kind
	Owner() string // the account of the record; empty if the record belongs to the store itself
	check() error
	visit(*fields.Walk) // visits the fields that checks and checksums cover
}

// A Key is an API key with the times of its last uses.
type Key struct {
	driver.Key

	// UsedAt is the last use of the token with Hash; zero means never. UsedAt, LastUsedAt and
	// PreviousUsedAt have the values recorded by [driver.KeyStore.RecordKeyUse].
	UsedAt time.Time
}

// A Webhook is a [driver.Webhook], including its secrets and health.
type Webhook struct {
	driver.Webhook
}

// A Request records the creation of a key or webhook by a request with an idempotency key.
type Request struct {
	Account        string
	Webhook        bool // the request created a webhook, not a key
	IdempotencyKey string
	At             time.Time // time of the request
	Made           driver.DuplicateRequestError
	KeyID          string // of the API key that made the request; empty means none
}

// An Alert is the stored state of a [driver.AlertSeries].
type Alert struct {
	Account string
	Series  string
	State   []byte // not empty
	Due     bool   // see [driver.AlertStep]
}

// A DedupKey is a deduplication key of the account.
type DedupKey struct {
	Account string
	driver.DedupKey
}

// A Scan is the state kept by [driver.AlertStore.UpdateScan]. Exports of a single account do not
// include it.
type Scan struct {
	State []byte // not empty
}

// An Event is a [driver.EncodedEvent] with its deliveries.
type Event struct {
	driver.EncodedEvent // Body is nil if NoBody

	PublishedAt time.Time
	Matched     int  // number of deliveries that were pending at publication
	NoBody      bool // the body was purged
	Forgotten   bool // the ID was purged, so a new event may use it; implies NoBody

	// Deliveries are sorted by webhook ID.
	Deliveries []Delivery
}

// A Delivery is an event's delivery to a webhook. If the delivery is not pending, the webhook may
// no longer exist.
type Delivery struct {
	WebhookID string
	State     driver.DeliveryState
	Attempts  []driver.Attempt // the stored attempts, oldest first

	// The fields below are only set if State is Pending.

	// Settled is the state that the delivery had before it was last made pending: Delivered or
	// Dead; empty in all other cases.
	Settled driver.DeliveryState

	Made      int  // attempts made so far
	Before    int  // attempts made before the delivery was last made pending
	Recovered bool // due after all deliveries that are not recovered
	First     bool // redelivered, so due before all others; a store need not keep this field

	// AsPublished means that the delivery has been due since the event was published; Wait is then
	// unset. Otherwise Wait is the time until the delivery is due, to the millisecond, negative if
	// it is already due.
	AsPublished bool
	Wait        time.Duration
}

// A Recovery is a [driver.Recovery] with the event at which it continues.
type Recovery struct {
	driver.Recovery

	// NextEventID is the event with which the recovery continues; empty if it has processed all
	// events or the webhook no longer exists. A store may return an earlier event.
	NextEventID string
}

// An AuditEntry is an audit entry with the time when it was stored. Exports return audit entries in
// the order in which they were stored. Exports of a single account omit the audit entries of the
// store itself.
type AuditEntry struct {
	audit.Entry
	StoredAt time.Time // determines when the audit entry is purged
}

// Kind returns KindKey.
func (*Key) Kind() Kind { return KindKey }

// Kind returns KindWebhook.
func (*Webhook) Kind() Kind { return KindWebhook }

// Kind returns KindRequest.
func (*Request) Kind() Kind { return KindRequest }

// Kind returns KindAlert.
func (*Alert) Kind() Kind { return KindAlert }

// Kind returns KindDedupKey.
func (*DedupKey) Kind() Kind { return KindDedupKey }

// Kind returns KindScan.
func (*Scan) Kind() Kind { return KindScan }

// Kind returns KindEvent.
func (*Event) Kind() Kind { return KindEvent }

// Kind returns KindRecovery.
func (*Recovery) Kind() Kind { return KindRecovery }

// Kind returns KindAuditEntry.
func (*AuditEntry) Kind() Kind { return KindAuditEntry }

// Owner returns the account.
func (r *Key) Owner() string { return r.Account }

// Owner returns the account.
func (r *Webhook) Owner() string { return r.Account }

// Owner returns the account.
func (r *Request) Owner() string { return r.Account }

// Owner returns the account.
func (r *Alert) Owner() string { return r.Account }

// Owner returns the account.
func (r *DedupKey) Owner() string { return r.Account }

// Owner returns "", because the scan belongs to the store.
func (*Scan) Owner() string { return "" }

// Owner returns the account.
func (r *Event) Owner() string { return r.Account }

// Owner returns the account.
func (r *Recovery) Owner() string { return r.Account }

// Owner returns the account, or "" if the audit entry belongs to the store.
func (r *AuditEntry) Owner() string { return r.Account }

// NoLater returns at, or an hour after now if at is later than that, because such a time comes from
// a clock that was ahead.
func NoLater(at, now time.Time) time.Time {
	if latest := now.Add(time.Hour); at.After(latest) {
		return latest
	}
	return at
}
