package webhooks

import "time"

// A Metric names what an account's reports are about. What a store keeps of one is
// an alert: the service's memory of what it has told already. Stores take others
// than these, too.
type Metric string

// The metrics.
const (
	MetricBalance      Metric = "balance"
	MetricBandwidth    Metric = "bandwidth"
	MetricTransactions Metric = "transactions"
)

// An AlertStep is one change of an account's alert; see [AlertStore.UpdateAlert].
type AlertStep struct {
	// State is what is kept, at most 1 MiB; empty if nothing is. It is to be
	// replaced and not written into.
	State []byte

	// Due tells that webhooks of the account were created, updated or deleted
	// since; of MetricBalance only.
	Due bool

	// Webhooks returns all webhooks of the account, ascending by id, but those
	// that cannot be read. During the step only.
	Webhooks func() []Webhook

	// Events are to be stored after those that are, in this order. Those whose
	// id the account has already are not, as with Enqueue.
	Events []AlertEvent

	// Deferrable tells that this State may be lost if the process is killed, and the
	// one before it be found: a store with one process can keep it in memory
	// until it is closed. Not with Events.
	Deferrable bool
}

// An AlertEvent is an event that an alert fired.
type AlertEvent struct {
	EncodedEvent

	// WebhookID is the only webhook that gets it, if it is subscribed; empty:
	// all that are.
	WebhookID string
}

// A DedupKey is kept of what an account was told of once and is not to be told again:
// of the same Key and Until, to the millisecond.
type DedupKey struct {
	Key   string    // 1 to 1,024 bytes
	Until time.Time // after 1970; from then on it need not be kept
}
