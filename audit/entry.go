package audit

import (
	"slices"
	"time"
)

// An Entry is an audit entry, which describes one change.
type Entry struct {
	// ID is "aud_" and a ULID. IDs ascend only roughly: lists are sorted by the exact order of
	// changes.
	ID      string
	At      time.Time // UTC, to the millisecond, by the clock of the node where it happened
	Account string    // the account; empty for StoreRecovered, which belongs to the host
	Action  Action
	Target  Target
	Actor   Actor

	// Changed holds the names of the changed fields, as in the HTTP API, except that a
	// webhook's balanceThreshold is "threshold". Only KeyChanged and WebhookChanged have it.
	Changed []string

	// Turned is "on" or "off" for a WebhookChanged entry whose Changed contains "active" and for a
	// KeyChanged entry whose Changed contains "enabled"; else "paused" or "resumed" for a
	// WebhookChanged entry whose Changed contains "pausedUntil"; else empty.
	Turned string

	// RequestID and ClientAddress identify the request that caused the change, up to 64 visible
	// ASCII characters each. They are empty if there was no request, or the host's Config does not
	// extract them.
	RequestID     string
	ClientAddress string

	// Object is the event ID of a DeliveryRedelivered, or the recovery ID of a RecoveryStarted.
	Object string

	// Reason is why the webhook of a WebhookOff was disabled: "gone" or "failing". For a KeyExpiring it
	// is [ReasonLifetime] if the key expires only because of apikeys.Config.MaxLifetime.
	Reason string

	// Since is the start of a failure: of the webhook for WebhookFailing, WebhookOff and
	// WebhookRecovered, of writes to the store for StoreRecovered.
	Since time.Time

	// Until depends on the action. KeyExpiring, KeyCreated: when the key expires. KeyRotated,
	// WebhookRotated: when the previous value becomes invalid. WebhookChanged: when the pause ends.
	// WebhookFailing: the earliest time at which the webhook will be disabled. StoreRecovered: when
	// the store could be written again. Zero means never, or unknown.
	Until time.Time

	// Pending means that the host's function has not accepted the entry yet.
	Pending bool
}

// IsZero reports whether n has no ID and thus describes no change.
func (n *Entry) IsZero() bool { return n.ID == "" }

// ReasonLifetime is the [Entry.Reason] of a KeyExpiring entry whose key has a later ExpiresAt, or
// none.
const ReasonLifetime = "lifetime"

// Announces reports whether a KeyExpiring entry is right for a key with this ExpiresAt.
func (n *Entry) Announces(expiresAt time.Time) bool {
	if n.Reason == ReasonLifetime {
		return expiresAt.IsZero() || expiresAt.After(n.Until)
	}
	return expiresAt.Equal(n.Until)
}

// MaxRoutine is the number of routine entries that a store keeps per account.
const MaxRoutine = 10_000

// Routine reports whether n is of little interest later, and of a kind that a key can cause in a
// loop: a redelivery, a recovery, or a change of only a key's name and labels or only a webhook's
// threshold. A store keeps the last [MaxRoutine] of them per account. All other entries, such as
// creations, deletions, rotations and changes of scopes, stay until they are purged. So no number of
// routine entries displaces them.
func (n *Entry) Routine() bool {
	switch n.Action {
	case DeliveryRedelivered, RecoveryStarted:
		return true
	case KeyChanged:
		return len(n.Changed) > 0 && !slices.ContainsFunc(n.Changed, func(field string) bool { return field != "name" && field != "labels" })
	case WebhookChanged:
		return slices.Equal(n.Changed, []string{"threshold"})
	}
	return false
}

// A Target is the object of a change. Entries of one target are delivered in order.
type Target struct {
	Kind TargetKind
	ID   string // empty for TargetStore and TargetAccount

	// Name is the target's name before the change or, for a creation, after it. A webhook's name is
	// the scheme and host of its URL, because the path may be secret. Hint is the hint of the key's
	// value at that time. Both show readers what a deleted target was, but are not part of its
	// identity.
	Name, Hint string
}

// Ref returns the target without its Name and Hint: all entries of a target have the same Ref.
func (t Target) Ref() Target { return Target{Kind: t.Kind, ID: t.ID} }

// A TargetKind is a kind of [Target].
type TargetKind string

// The kinds of targets.
const (
	TargetKey     TargetKind = "key"     // an API key
	TargetWebhook TargetKind = "webhook" // a webhook, with its deliveries and recoveries
	TargetAccount TargetKind = "account" // the account as a whole
	TargetStore   TargetKind = "store"   // the store as a whole
)

// An Action is the kind of a change.
type Action string

// The actions.
const (
	KeyCreated  Action = "key.created"  // A key was created.
	KeyImported Action = "key.imported" // A key of another system was added.
	KeyChanged  Action = "key.changed"  // Settings of a key were changed.
	KeyRotated  Action = "key.rotated"  // A key was given a new value.
	KeyDeleted  Action = "key.deleted"  // A key was deleted.
	KeyExpiring Action = "key.expiring" // A key expires soon: one entry 14 days before, one 3 days.

	WebhookCreated   Action = "webhook.created"   // A webhook was created.
	WebhookChanged   Action = "webhook.changed"   // Settings of a webhook were changed.
	WebhookRotated   Action = "webhook.rotated"   // A webhook was given a new signing secret.
	WebhookDeleted   Action = "webhook.deleted"   // A webhook was deleted.
	WebhookFailing   Action = "webhook.failing"   // A webhook will be disabled if it keeps failing.
	WebhookOff       Action = "webhook.off"       // The service disabled a webhook.
	WebhookRecovered Action = "webhook.recovered" // An attempt succeeded after a WebhookFailing entry.

	DeliveryRedelivered Action = "delivery.redelivered" // A delivery was scheduled again on request.
	RecoveryStarted     Action = "recovery.started"     // Deliveries of a time range are resent.

	AccountErased  Action = "account.erased"  // All data of an account was erased.
	StoreRecovered Action = "store.recovered" // The store can be written again after an outage.
)

// Actions returns all actions, in the order of their declaration.
func Actions() []Action {
	return []Action{
		KeyCreated, KeyImported, KeyChanged, KeyRotated, KeyDeleted, KeyExpiring,
		WebhookCreated, WebhookChanged, WebhookRotated, WebhookDeleted, WebhookFailing, WebhookOff, WebhookRecovered,
		DeliveryRedelivered, RecoveryStarted, AccountErased, StoreRecovered,
	}
}
