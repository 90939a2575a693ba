package webhooks

import (
	"context"
	"time"
)

// An AlertStore is the part of a [Store] that keeps what alerts remember from one report
// to the next, so that each is told once. What the bytes mean is the service's business.
type AlertStore interface {
	// UpdateAlert calls change with the account's alert, and stores what change leaves of
	// it together with the events, in one step. It returns how many pending deliveries
	// that made. An error of change is returned, and nothing is stored. Neither the alert
	// nor the account's webhooks change between reading and storing. change may run more
	// than once, and must not call the store.
	//
	// Hosts report all the time, and mostly nothing new: if change leaves the State as it
	// was, without events, and the alert is not due, nothing is written, no call waits for
	// a write, and the answer comes from memory if the store has one process, or else by
	// reading a row.
	UpdateAlert(ctx context.Context, account string, metric Metric, change func(*AlertStep) error) (deliveries int, err error)

	// DueAlerts returns accounts, at most limit, whose alert of MetricBalance is due:
	// CreateWebhook, UpdateWebhook and DeleteWebhook make it so in the same step if the
	// account has such an alert, and UpdateAlert ends that.
	DueAlerts(ctx context.Context, limit int) (accounts []string, err error)

	// UnseenKeys returns the indexes, ascending, of the deduplication keys that the
	// account does not have.
	UnseenKeys(ctx context.Context, account string, dedupKeys []DedupKey) (fresh []int, err error)

	// EnqueueOnce stores the deduplication keys and, as Enqueue does, the event, in one
	// step. ErrExists if the event's account has one of the keys already, and nothing is
	// stored.
	EnqueueOnce(ctx context.Context, event EncodedEvent, dedupKeys []DedupKey) (deliveries int, err error)

	// UpdateFileScan calls change with the state of the scan for expiring files, which is
	// one for all who share the store and empty at first, and stores the state that change
	// returns, of at most 4 KiB. An error of change is returned, and nothing is stored. The
	// state does not change between reading and storing. change may run more than once,
	// must not write into the state that it is given, and must not call the store.
	UpdateFileScan(ctx context.Context, change func(state []byte) ([]byte, error)) error
}

// A Metric names what an account's reports are about. A store keeps an alert of each, and
// takes other metrics than these, too.
type Metric string

// The metrics.
const (
	MetricBalance      Metric = "balance"
	MetricBandwidth    Metric = "bandwidth"
	MetricTransactions Metric = "transactions"
)

// An AlertStep is one change of an account's alert; see [AlertStore.UpdateAlert].
type AlertStep struct {
	// State is what the alert remembers, at most 1 MiB; empty: nothing. A change
	// replaces it and does not write into it.
	State []byte

	// Due says that webhooks of the account were created, updated or deleted since the
	// last step; of MetricBalance only.
	Due bool

	// Webhooks returns all webhooks of the account, ascending by id, except those
	// that cannot be read. It is for use during the step only.
	Webhooks func() []Webhook

	// Events are to be stored in this order, as Enqueue does: not those whose id the
	// account has already.
	Events []AlertEvent

	// Deferrable says that a crash may bring back the State before this one: a store
	// with one process can keep this one in memory until it is closed. Not with Events.
	Deferrable bool
}

// An AlertEvent is an event that an alert fired.
type AlertEvent struct {
	EncodedEvent

	// WebhookID is the only webhook that gets it, if it is subscribed; empty: all
	// subscribed webhooks do.
	WebhookID string
}

// A DedupKey is a deduplication key: an event is published once for each Key and Until,
// to the millisecond, of an account.
type DedupKey struct {
	Key   string    // 1 to 1,024 bytes
	Until time.Time // after 1970; from then on the store may forget it
}
