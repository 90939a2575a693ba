package webhooks

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A Webhook is an endpoint that receives an account's events.
type Webhook struct {
	ID      string // "wh_" and a ULID; later webhooks sort after earlier ones
	Account string // who it belongs to
	URL     string // https

	// Events are the subscribed event types, at least one, in the caller's
	// order without duplicates.
	Events []EventType

	// Active tells whether events are sent. What an inactive webhook is still
	// owed waits until it is active again; events published meanwhile are not
	// for it.
	Active bool

	// BalanceThreshold is for balance.low events; zero: none of its own.
	BalanceThreshold Amount

	Secret    signing.Secret // signs what is sent
	CreatedAt time.Time      // UTC, to the millisecond
}

// Subscribes reports whether the webhook is to receive events of the type now:
// it is active and subscribed.
func (w *Webhook) Subscribes(t EventType) bool {
	return w.Active && slices.Contains(w.Events, t)
}
