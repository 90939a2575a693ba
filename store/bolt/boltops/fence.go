package boltops

import (
	"errors"
	"time"
)

// ErrUnfenced is wrapped by the error of [Restore] if the [Fence] does not list the revocations
// since the backup.
var ErrUnfenced = errors.New("it is not known what was revoked since the backup")

// A Fence lists the revocations that a restored file must include. Restore refuses the zero value
// with [ErrUnfenced]: set at least one of Abandoned, DeletedKeys, RotatedKeys and NothingRevoked.
type Fence struct {
	// Abandoned is the path of the replaced file, if still readable. The file must be closed, and
	// is only read. The restored file is then a copy of it. Keys and webhooks keep their last
	// state, and nothing acknowledged is lost or sent twice. If the abandoned file was itself
	// restored from an earlier backup, events that only the backup has are added. Restore refuses
	// an abandoned file with damaged pages, with [bolt.ErrSchema], and an older file than the
	// backup, or the backup itself, with ErrUnfenced.
	Abandoned string

	// DeletedKeys are the keys deleted since the backup, from the host's own records. Restore
	// deletes them even if the abandoned file has them, and ignores keys that do not exist.
	DeletedKeys []Ref

	// RotatedKeys are the keys rotated since the backup. The backup lacks their new values, so
	// unless the abandoned file has the new value, no value of the key is valid: the key remains,
	// and must be rotated to get one. Name only keys rotated since the backup: other keys would
	// lose the values in use.
	RotatedKeys []Ref

	// DeletedWebhooks are the webhooks deleted since the backup. Restore deletes them, with their
	// pending deliveries.
	DeletedWebhooks []Ref

	// ErasedAccounts are the accounts erased since the backup. Restore erases their data from the
	// backup; their data in the abandoned file is newer, and stays. Restore also completes erasures
	// under way in the restored file.
	ErasedAccounts []string

	// NothingRevoked states that no key was deleted or rotated since the backup.
	NothingRevoked bool

	// NoHold keeps Restore from putting all webhooks on hold. Then, unless there is an abandoned
	// file, deliveries made since the backup are repeated as soon as the host runs.
	NoHold bool

	// RefuseDamaged refuses a file in which [Verify] finds any problem. By default a file with
	// sound pages is restored, and its damaged rows are in [RestoreInfo.Damaged].
	RefuseDamaged bool

	// Report, unless nil, is called with each change and each delivery in doubt: one call at a
	// time, before Restore returns. If Restore fails, the reported changes did not happen.
	Report func(Finding)
}

// A Ref names a key or a webhook.
type Ref struct{ Account, ID string }

// A Finding is a change that [Restore] made, or a delivery in doubt.
type Finding struct {
	Kind    FindingKind
	Account string
	ID      string // of the key, the webhook or the event
	Webhook string // receiver, for MayBeSentTwice
}

// A FindingKind is the kind of a [Finding].
type FindingKind string

// The kinds of findings.
const (
	// Deleted since the backup, or impossible to revoke.
	KeyDeleted FindingKind = "key deleted"
	// Value replaced since the backup; the new one is unknown.
	KeyDead FindingKind = "key without a value"
	// Deleted since the backup.
	WebhookDeleted FindingKind = "webhook deleted"
	// Delivery pending at the time of the backup, perhaps sent since.
	MayBeSentTwice FindingKind = "may be sent twice"
	// In the backup; the abandoned file never had it.
	EventAdded FindingKind = "event added"
	// Erased since the backup.
	AccountErased FindingKind = "account erased"
)

// A RestoreInfo counts the findings of [Restore].
type RestoreInfo struct {
	// LastPublished is the time of the newest event in the restored file; zero if it has none.
	// Without an abandoned file, events published later are lost.
	LastPublished time.Time

	KeysDeleted, KeysDead                       int
	WebhooksHeld, WebhooksDeleted               int
	MayBeSentTwice, EventsAdded, AccountsErased int

	// Damaged are the first 100 rows that [Verify] finds damaged; MoreDamaged is the number of
	// further ones. They are in the restored file unchanged, except keys that cannot be found by
	// ID: those are deleted, because they could not be revoked.
	Damaged     []Problem
	MoreDamaged int
}
