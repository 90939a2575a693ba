package boltops

import (
	"errors"
	"time"
)

// ErrUnfenced is wrapped by the error of [Restore] if the [Fence] does not list the revocations
// since the backup.
var ErrUnfenced = errors.New("revocations since the backup are unknown")

// A Fence lists the revocations that a restored file must include. Restore refuses the zero value
// with [ErrUnfenced]: set at least one of Abandoned, DeletedKeys, RotatedKeys, DisabledKeys and
// NothingRevoked.
type Fence struct {
	// Abandoned is the path of the file that the restored file replaces, if it is still readable.
	// Restore then copies the abandoned file instead of the backup: keys and webhooks keep their
	// last state, and nothing acknowledged is lost or sent twice. If the abandoned file was itself
	// restored from an earlier backup, Restore adds the events that only the backup has. The
	// abandoned file must be closed; Restore only reads it. If the abandoned file has damaged
	// pages, the error wraps [bolt.ErrSchema]. If the abandoned file is older than the backup, or
	// is the backup itself, the error wraps [ErrUnfenced].
	Abandoned string

	// DeletedKeys are the keys deleted since the backup, according to the host's own records.
	// Restore deletes them even from a copy of the abandoned file, and ignores keys that do not
	// exist.
	DeletedKeys []Ref

	// RotatedKeys are the keys rotated since the backup. The backup lacks their new values. So
	// unless the abandoned file has the new value, Restore keeps the key without any valid value;
	// rotate it to get one. Name only keys rotated since the backup: other keys would lose the
	// values in use.
	RotatedKeys []Ref

	// DisabledKeys are the keys disabled since the backup, or given an earlier expiry. Restore
	// disables them, even in a copy of the abandoned file.
	DisabledKeys []Ref

	// DeletedWebhooks are the webhooks deleted since the backup. Restore deletes them, with their
	// pending deliveries.
	DeletedWebhooks []Ref

	// ErasedAccounts are the accounts erased since the backup. Restore erases their data in the
	// backup, but keeps their data in the abandoned file, which is newer than the erasure. Restore
	// also completes erasures that are in progress in the restored file.
	ErasedAccounts []string

	// NothingRevoked states that no key was deleted, rotated, disabled or shortened since the backup.
	NothingRevoked bool

	// NoHold makes Restore leave the webhooks as they are; by default it puts all of them on hold.
	// With NoHold and no abandoned file, deliveries made since the backup are repeated as soon as
	// the host runs.
	NoHold bool

	// RefuseDamaged makes Restore refuse a file in which [Verify] finds any problem. By default,
	// Restore accepts a file whose pages are sound, and lists its damaged rows in
	// [RestoreInfo.Damaged].
	RefuseDamaged bool

	// Report, unless nil, is called with each change and each delivery that may be sent twice.
	// Calls do not overlap, and end before Restore returns. If Restore fails, the reported changes
	// did not happen.
	Report func(Finding)
}

// A Ref names a key or a webhook.
type Ref struct{ Account, ID string }

// A Finding is a change that [Restore] made, or a delivery that may be sent twice.
type Finding struct {
	Kind    FindingKind
	Account string
	ID      string // ID of the key, the webhook or the event
	Webhook string // ID of the receiver, only for MayBeSentTwice
}

// A FindingKind is the kind of a [Finding].
type FindingKind string

// The kinds of findings.
const (
	// KeyDeleted: the key has been deleted since the backup, or it could not be revoked.
	KeyDeleted FindingKind = "key deleted"
	// KeyDead: the key's value has been replaced since the backup, and the new value is unknown.
	KeyDead FindingKind = "key without a value"
	// KeyDisabled: the key has been disabled or given an earlier expiry since the backup.
	KeyDisabled FindingKind = "key disabled"
	// WebhookDeleted: the webhook has been deleted since the backup.
	WebhookDeleted FindingKind = "webhook deleted"
	// MayBeSentTwice: the delivery was pending at the time of the backup, and may have been sent
	// since.
	MayBeSentTwice FindingKind = "may be sent twice"
	// EventAdded: the backup has the event, and the abandoned file never had it.
	EventAdded FindingKind = "event added"
	// AccountErased: the account has been erased since the backup.
	AccountErased FindingKind = "account erased"
)

// A RestoreInfo counts the findings of [Restore].
type RestoreInfo struct {
	// LastPublished is the publication time of the newest event in the restored file; zero if it
	// has no event. Without an abandoned file, events published later are lost.
	LastPublished time.Time

	KeysDeleted, KeysDead, KeysDisabled         int
	WebhooksHeld, WebhooksDeleted               int
	MayBeSentTwice, EventsAdded, AccountsErased int

	// Damaged are the first 100 rows that [Verify] finds damaged; MoreDamaged is the number of
	// further damaged rows. The restored file has them unchanged, except that Restore deletes
	// damaged keys that could not be revoked: unreadable keys that the fence lists, and keys that
	// cannot be found by ID.
	Damaged     []Problem
	MoreDamaged int
}
