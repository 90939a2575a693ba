package notices

import (
	"slices"
	"time"
)

// A Notice tells of one thing that happened.
type Notice struct {
	ID      string    // "ntc_" and a ULID; later notices mostly sort after earlier ones: lists are in the order of what happened
	At      time.Time // UTC, to the millisecond, by the clock of the node where it happened
	Account string    // whose it is; empty for StoreRecovered, which is the host's
	Action  Action
	Target  Target
	Actor   Actor

	// Changed are the names of the fields that have another value now, as the HTTP API
	// calls them; of KeyChanged and WebhookChanged only.
	Changed []string

	// Turned is which way a WebhookChanged turned the webhook whose Changed has "active":
	// "on" or "off"; else empty.
	Turned string

	// RequestID and ClientAddress are of the request that asked for it, if there was one
	// and the host's Config says how to find them: up to 64 visible ASCII characters each.
	RequestID     string
	ClientAddress string

	// Object is the id of the event of a DeliveryRedelivered, or of the
	// recovery of a RecoveryStarted.
	Object string

	// Reason is why the webhook of a WebhookOff was turned off: "gone" or "failing".
	Reason string

	// Since is since when the webhook fails, or failed, of WebhookFailing, WebhookOff and
	// WebhookRecovered; and since when the store could not be written, of StoreRecovered.
	Since time.Time

	// Until is when the key of KeyExpiring or KeyCreated expires, the previous value of
	// KeyRotated or WebhookRotated ends, the webhook of WebhookFailing will be turned off at
	// the earliest, and the store of StoreRecovered could be written again. Zero: never, or
	// not known.
	Until time.Time

	// Pending says that it waits for the host's function to take it.
	Pending bool
}

// IsZero reports whether n is no notice: one without an ID.
func (n *Notice) IsZero() bool { return n.ID == "" }

// MaxRoutine is how many routine notices of an account a store keeps.
const MaxRoutine = 10_000

// Routine reports whether n is of the kinds that a key can cause in a loop and that matter little
// when they are old: changes of nothing but a key's name or a webhook's balance threshold,
// redeliveries and recoveries. A store keeps the last [MaxRoutine] of each account. All others,
// such as creations, deletions, rotations and changes of scopes, stay until they are purged:
// no number of routine notices removes them.
func (n *Notice) Routine() bool {
	switch n.Action {
	case DeliveryRedelivered, RecoveryStarted:
		return true
	case KeyChanged:
		return slices.Equal(n.Changed, []string{"name"})
	case WebhookChanged:
		return slices.Equal(n.Changed, []string{"balanceThreshold"})
	}
	return false
}

// A Target is what something happened to. Notices of one target are told in their order.
type Target struct {
	Kind TargetKind
	ID   string // empty for TargetStore and TargetAccount

	// Name is what it was called before it happened, or of a creation afterwards: the name of
	// a key, or scheme and host of the URL of a webhook, whose path may be secret. Hint is
	// the hint of the key's value then. Both say what it was when it is gone, and do not
	// belong to its identity.
	Name, Hint string
}

// Ref returns the target without its Name and Hint: notices of one target have one Ref.
func (t Target) Ref() Target { return Target{Kind: t.Kind, ID: t.ID} }

// A TargetKind is a kind of [Target].
type TargetKind string

// The kinds of targets.
const (
	TargetKey     TargetKind = "key"     // an API key
	TargetWebhook TargetKind = "webhook" // a webhook, with its deliveries and recoveries
	TargetAccount TargetKind = "account" // the account as a whole
	TargetStore   TargetKind = "store"   // all that is stored
)

// An Action is what happened.
type Action string

// The actions.
const (
	KeyCreated  Action = "key.created"  // A key was created.
	KeyImported Action = "key.imported" // A key of another system was added.
	KeyChanged  Action = "key.changed"  // Settings of a key were changed.
	KeyRotated  Action = "key.rotated"  // A key was given a new value.
	KeyDeleted  Action = "key.deleted"  // A key was deleted.
	KeyExpiring Action = "key.expiring" // A key expires in 14 days or in 3: told once for each.

	WebhookCreated   Action = "webhook.created"   // A webhook was created.
	WebhookChanged   Action = "webhook.changed"   // Settings of a webhook were changed.
	WebhookRotated   Action = "webhook.rotated"   // A webhook was given a new signing secret.
	WebhookDeleted   Action = "webhook.deleted"   // A webhook was deleted.
	WebhookFailing   Action = "webhook.failing"   // A webhook will be turned off if its attempts go on failing.
	WebhookOff       Action = "webhook.off"       // The service turned a webhook off.
	WebhookRecovered Action = "webhook.recovered" // An attempt succeeded after a WebhookFailing.

	DeliveryRedelivered Action = "delivery.redelivered" // A delivery was made due again on request.
	RecoveryStarted     Action = "recovery.started"     // Deliveries of a range of time are being sent again.

	AccountErased  Action = "account.erased"  // All data of an account was erased.
	StoreRecovered Action = "store.recovered" // The store could not be written for a while, and can be again.
)

// Actions returns all actions, in the order of their declaration.
func Actions() []Action {
	return []Action{
		KeyCreated, KeyImported, KeyChanged, KeyRotated, KeyDeleted, KeyExpiring,
		WebhookCreated, WebhookChanged, WebhookRotated, WebhookDeleted, WebhookFailing, WebhookOff, WebhookRecovered,
		DeliveryRedelivered, RecoveryStarted, AccountErased, StoreRecovered,
	}
}
