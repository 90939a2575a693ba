package transfer

import (
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// A Kind says what a record is.
type Kind string

// The kinds of records, in the order of an export.
const (
	KindKey      Kind = "key"
	KindWebhook  Kind = "webhook"
	KindRequest  Kind = "request"
	KindAlert    Kind = "alert"
	KindDedupKey Kind = "dedup_key"
	KindFileScan Kind = "file_scan"
	KindEvent    Kind = "event"
	KindRecovery Kind = "recovery"
	KindNotice   Kind = "notice"
)

// A Record is a *Key, *Webhook, *Request, *Alert, *DedupKey, *FileScan, *Event, *Recovery or
// *Notice. Neither who exports nor who imports one changes it afterwards.
type Record interface {
	Kind() Kind
	Owner() string // the account that it belongs to; empty: the store
	check() error
}

// A Key is an API key with its uses.
type Key struct {
	apikeys.Key

	// UsedAt is when its Hash was last used; zero: never. With LastUsedAt and
	// PreviousUsedAt it is what [apikeys.Store.RecordKeyUse] has recorded.
	UsedAt time.Time
}

// A Webhook is one with its secrets and its health.
type Webhook struct {
	webhooks.Webhook
}

// A Request is one that created something, known by its idempotency key.
type Request struct {
	Account        string
	Webhook        bool // what was created is a webhook, else a key
	IdempotencyKey string
	At             time.Time // when it was made
	Made           apikeys.DuplicateRequestError
	KeyID          string // of the API key that made it; empty: none did
}

// An Alert is what an alert remembers.
type Alert struct {
	Account string
	Metric  webhooks.Metric
	State   []byte // not empty
	Due     bool   // see [webhooks.AlertStep]; of MetricBalance only
}

// A DedupKey is a deduplication key that the account has.
type DedupKey struct {
	Account string
	webhooks.DedupKey
}

// A FileScan is the state of the scan for expiring files. An export of one account has
// none.
type FileScan struct {
	State []byte // not empty
}

// An Event is one with its deliveries.
type Event struct {
	webhooks.EncodedEvent // Body is nil if NoBody

	PublishedAt time.Time
	Matched     int  // how many deliveries were pending when it was published
	NoBody      bool // its body was purged
	Forgotten   bool // its id is not known any more; it has no body then

	// Deliveries are ascending by webhook id.
	Deliveries []Delivery
}

// A Delivery is an event's delivery to a webhook, which may be gone if it is not pending.
type Delivery struct {
	WebhookID string
	State     webhooks.DeliveryState
	Attempts  []webhooks.Attempt // those that are kept, the first one first

	// What follows is of a Pending one.

	// Settled is the state that it was in before it was last made pending, Delivered or
	// Dead; empty: neither.
	Settled webhooks.DeliveryState

	Made      int  // how many attempts were made so far
	Before    int  // of them, before it was last made pending
	Recovered bool // it comes after all that was not
	First     bool // it was redelivered, and comes before all else; a store need not know

	// AsPublished says that it is due since the event was published, and there is no
	// Wait. Else it is due after Wait, which is negative if it is due already, to the
	// millisecond.
	AsPublished bool
	Wait        time.Duration
}

// A Recovery is one with how far it has come.
type Recovery struct {
	webhooks.Recovery

	// NextEventID is the event of the webhook to go on with; empty: it has looked at all
	// that there are, or the webhook is gone. A store may name an earlier one.
	NextEventID string
}

// A Notice is one that tells what happened. An export has them in the order in which they were
// stored; an export of one account has none of the store itself.
type Notice struct {
	notices.Notice
	StoredAt time.Time // it is purged by
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

// Kind returns KindFileScan.
func (*FileScan) Kind() Kind { return KindFileScan }

// Kind returns KindEvent.
func (*Event) Kind() Kind { return KindEvent }

// Kind returns KindRecovery.
func (*Recovery) Kind() Kind { return KindRecovery }

// Kind returns KindNotice.
func (*Notice) Kind() Kind { return KindNotice }

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

// Owner returns nothing: the scan is the store's.
func (*FileScan) Owner() string { return "" }

// Owner returns the account.
func (r *Event) Owner() string { return r.Account }

// Owner returns the account.
func (r *Recovery) Owner() string { return r.Account }

// Owner returns the account; nothing if the notice is the store's.
func (r *Notice) Owner() string { return r.Account }

// NoLater returns when something has happened that a record says happened at that time: an hour after now at the
// latest. What happened later was recorded under a clock that was ahead.
func NoLater(at, now time.Time) time.Time {
	if latest := now.Add(time.Hour); at.After(latest) {
		return latest
	}
	return at
}
