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
// *Audit entry. Neither the exporting nor the importing side may modify it afterwards.
type Record interface {
	Kind() Kind
	Owner() string // the account of the record; empty: the store
	check() error
}

// A Key is an API key with its uses.
type Key struct {
	driver.Key

	// UsedAt is the last use with Hash; zero: never. UsedAt, LastUsedAt and PreviousUsedAt have the
	// values recorded by [driver.KeyStore.RecordKeyUse].
	UsedAt time.Time
}

// Fields lists the fields of the record.
func (r *Key) Fields(w *fields.Walk) {
	r.Key.Fields(w)
	fields.Time(w, "usedAt", fields.Placed, 0, &r.UsedAt)
}

// A Webhook is a webhook with its secrets and its health.
type Webhook struct {
	driver.Webhook
}

// A Request is a creation identified by an idempotency key.
type Request struct {
	Account        string
	Webhook        bool // the request created a webhook, not a key
	IdempotencyKey string
	At             time.Time // time of the request
	Made           driver.DuplicateRequestError
	KeyID          string // of the API key that made the request; empty: none
}

// An Alert is the state of an alert: of an account's [driver.AlertSeries].
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

// A Scan is the state of [driver.AlertStore.UpdateScan]. Exports of a single account do not
// include it.
type Scan struct {
	State []byte // not empty
}

// An Event is an event with its deliveries.
type Event struct {
	driver.EncodedEvent // Body is nil if NoBody

	PublishedAt time.Time
	Matched     int  // number of deliveries pending at publication
	NoBody      bool // the body was purged
	Forgotten   bool // the ID is no longer known; implies NoBody

	// Deliveries are sorted by webhook ID.
	Deliveries []Delivery
}

// A Delivery is an event's delivery to a webhook. Unless it is pending, the webhook may no longer
// exist.
type Delivery struct {
	WebhookID string
	State     driver.DeliveryState
	Attempts  []driver.Attempt // the stored attempts, oldest first

	// The fields below are only set if State is Pending.

	// Settled is the state before the delivery was last made pending: Delivered, Dead or empty.
	Settled driver.DeliveryState

	Made      int  // attempts made so far
	Before    int  // attempts made before it was last made pending
	Recovered bool // due after all deliveries that are not recovered
	First     bool // redelivered, so due before all others; a store need not record it

	// AsPublished means that the delivery has been due since the event was published; Wait is then
	// unset. Otherwise the delivery is due after Wait, to the millisecond. Wait is negative if it
	// is already due.
	AsPublished bool
	Wait        time.Duration
}

// A Recovery is a recovery with its progress.
type Recovery struct {
	driver.Recovery

	// NextEventID is the webhook's event to continue with; empty: the recovery has processed all
	// events, or the webhook no longer exists. A store may return an earlier event.
	NextEventID string
}

// An AuditEntry is an audit entry with its time of storing. Exports return audit entries in the order of storing;
// exports of a single account omit audit entries of the store itself.
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

// Owner returns "": the scan belongs to the store.
func (*Scan) Owner() string { return "" }

// Owner returns the account.
func (r *Event) Owner() string { return r.Account }

// Owner returns the account.
func (r *Recovery) Owner() string { return r.Account }

// Owner returns the account; "" if the audit entry belongs to the store.
func (r *AuditEntry) Owner() string { return r.Account }

// NoLater limits the time of a record's event to an hour after now. A later time was recorded by a
// clock that was ahead.
func NoLater(at, now time.Time) time.Time {
	if latest := now.Add(time.Hour); at.After(latest) {
		return latest
	}
	return at
}
