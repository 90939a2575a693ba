package driver

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/capability"
)

// An AlertStore keeps the state of alerts between reports, so that each alert is sent once. To the
// store a state is opaque: bytes under an account and a series, such as the account's reports of
// one kind. A store accepts any series.
type AlertStore interface {
	// UpdateAlert calls change with the state of the account's series, and stores the changed state
	// together with the events, in one step. It returns the number of new pending deliveries. If
	// change returns an error, UpdateAlert returns it and stores nothing. Neither the state nor the
	// account's webhooks change between reading and storing. change may run more than once, and
	// must not call the store.
	//
	// Hosts report often, and mostly without changes. If change keeps the State and adds no events,
	// and the series is not due, then nothing is written, no call waits for a write, and a
	// single-process store answers from memory; other stores read one row.
	UpdateAlert(ctx context.Context, account, series string, change func(*AlertStep) error) (deliveries int, err error)

	// DueAlerts returns at most limit series that are due. CreateWebhook, UpdateWebhook and
	// DeleteWebhook make all series of the account due that have a state, in the same step;
	// UpdateAlert clears that.
	DueAlerts(ctx context.Context, limit int) ([]AlertSeries, error)

	// UnseenKeys returns the ascending indexes of the deduplication keys that the account does not
	// have.
	UnseenKeys(ctx context.Context, account string, dedupKeys []DedupKey) (fresh []int, err error)

	// EnqueueOnce stores the deduplication keys and, like Enqueue, the event, in one step. If the
	// account already has one of the keys, it stores nothing and returns ErrExists.
	EnqueueOnce(ctx context.Context, event EncodedEvent, dedupKeys []DedupKey) (deliveries int, err error)

	// UpdateScan calls change with the state of the scan, and stores the state that change returns,
	// at most 4 KiB. All processes and accounts share one state, which is empty at first. If change
	// returns an error, UpdateScan returns it and stores nothing. The state does not change between
	// reading and storing. change may run more than once, must not modify the given state, and must
	// not call the store.
	UpdateScan(ctx context.Context, change func(state []byte) ([]byte, error)) error

	// Capabilities returns the store's optional features.
	Capabilities() capability.Set
}

// An AlertSeries identifies the state of an alert.
type AlertSeries struct {
	Account string
	Name    string
}

// An AlertStep is one change of a state; see [AlertStore].
type AlertStep struct {
	// State is the state, at most 1 MiB; empty: none. A change must replace it, not write into it.
	State []byte

	// Due reports whether webhooks of the account were created, updated or deleted since the last
	// step that had a state.
	Due bool

	// Webhooks returns all readable webhooks of the account, by ascending ID. Use it during the
	// step only.
	Webhooks func() []Webhook

	// Events are stored in this order, as by Enqueue. Events with an ID that the account already
	// has are skipped.
	Events []AlertEvent

	// Deferrable permits that a crash restores the previous State: a single-process store can keep
	// this State in memory until it is closed. Not with Events.
	Deferrable bool
}

// An AlertEvent is an event of a [AlertStep].
type AlertEvent struct {
	EncodedEvent

	// WebhookID restricts the event to this webhook, if it is subscribed; empty: all subscribed
	// webhooks get it.
	WebhookID string
}

// A DedupKey is a deduplication key: an event is published once per account for each Key and Until,
// to the millisecond.
type DedupKey struct {
	Key   string    // 1 to 1,024 bytes
	Until time.Time // after 1970; the store may forget the key after this time
}
