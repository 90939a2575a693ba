package driver

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/capability"
)

// An AlertStore keeps the state of alerts between reports, so that each alert is sent once. A state
// is a byte string, which the store does not interpret. It is identified by an account and the name
// of a series; a series is usually one kind of report. A store accepts any series name.
type AlertStore interface {
	// UpdateAlert calls change with the state of the account's series, and stores the changed state
	// together with the events, in one step. It returns the number of new pending deliveries. If
	// change returns an error, UpdateAlert returns it and stores nothing. No other call changes the
	// state or the account's webhooks between reading and storing. change may run more than once,
	// and must not call the store.
	//
	// Hosts report often, and most reports change nothing. If change keeps the State and adds no
	// events, and the series is not due, UpdateAlert writes nothing, and no call has to wait for a
	// write. A single-process store then answers from memory; other stores read one row.
	UpdateAlert(ctx context.Context, account, series string, change func(*AlertStep) error) (deliveries int, err error)

	// DueAlerts returns at most limit series that are due. If a series has a state, it becomes due
	// whenever CreateWebhook, UpdateWebhook or DeleteWebhook changes a webhook of its account, in
	// the same step. UpdateAlert makes the series no longer due.
	DueAlerts(ctx context.Context, limit int) ([]AlertSeries, error)

	// UnseenKeys returns the indexes of the elements of dedupKeys that are not stored for the
	// account, in ascending order.
	UnseenKeys(ctx context.Context, account string, dedupKeys []DedupKey) (fresh []int, err error)

	// EnqueueOnce stores the event, as Enqueue does, and the deduplication keys in one step. If the
	// account already has one of the keys, it stores nothing and returns ErrExists.
	EnqueueOnce(ctx context.Context, event EncodedEvent, dedupKeys []DedupKey) (deliveries int, err error)

	// UpdateScan calls change with the state of the scan for expiring files, and stores the state
	// that change returns, at most 4 KiB. All processes and accounts share one state, which is
	// empty at first. If change returns an error, UpdateScan returns it and stores nothing. No
	// other call changes the state between reading and storing. change may run more than once, must
	// not modify the given state, and must not call the store.
	UpdateScan(ctx context.Context, change func(state []byte) ([]byte, error)) error

	// Capabilities returns the store's optional features.
	Capabilities() capability.Set
}

// An AlertSeries identifies the state of an alert.
type AlertSeries struct {
	Account string
	Name    string
}

// An AlertStep holds the input and the results of a change function; see [AlertStore.UpdateAlert].
type AlertStep struct {
	// State is the stored state, at most 1 MiB; empty if there is none. To change it, assign a new
	// slice; do not modify its bytes.
	State []byte

	// Due reports whether a webhook of the account was created, updated or deleted since the
	// previous UpdateAlert of this series. It is false if there is no stored state.
	Due bool

	// Webhooks returns all readable webhooks of the account, by ascending ID. It may be called only
	// while change runs.
	Webhooks func() []Webhook

	// Events lists the events to store, in this order, as Enqueue does. The store skips an event if
	// the account already has one with its ID.
	Events []AlertEvent

	// Deferrable means that a crash may replace this State with the previous State. A
	// single-process store can therefore keep this State in memory until the store is closed.
	// Deferrable must not be set together with Events.
	Deferrable bool
}

// An AlertEvent is an event of an [AlertStep].
type AlertEvent struct {
	EncodedEvent

	// If WebhookID is not empty, only this webhook gets the event, and only if the webhook is
	// subscribed. If WebhookID is empty, all subscribed webhooks get the event.
	WebhookID string
}

// A DedupKey is a deduplication key: an account publishes at most one event for each pair of Key
// and Until, where Until is compared to the millisecond.
type DedupKey struct {
	Key   string    // 1 to 1,024 bytes
	Until time.Time // after 1970; the store may forget the key after this time
}
