package boltops

import (
	"errors"
	"time"
)

// ErrUnfenced is wrapped by the error of [Restore] if the [Fence] does not say what was revoked since the backup.
var ErrUnfenced = errors.New("it is not known what was revoked since the backup")

// A Fence says what a restored file must not bring back. Its zero value is refused with
// [ErrUnfenced]: give one or more of Abandoned, DeletedKeys and RotatedKeys, or say
// NothingRevoked.
type Fence struct {
	// Abandoned is the path of the file that the restored one replaces, if it can still be read. It must be
	// closed, and is only read. The restored file is a copy of it then: keys and webhooks are as
	// they were left, and nothing that was acknowledged is lost or sent twice. Events of the backup that the
	// abandoned file never had, since it was itself restored from an earlier one, are added.
	// Restore refuses a file with damaged pages, with [bolt.ErrSchema], and one that is older than the backup, or is
	// the backup itself, with ErrUnfenced.
	Abandoned string

	// DeletedKeys are the keys that were deleted since, as the host's own records have
	// them. They are deleted, also if the abandoned file has them. Keys that do not exist change nothing.
	DeletedKeys []Ref

	// RotatedKeys are the keys whose value was replaced since. A backup does not have the
	// new value, so unless the abandoned file has it, no value of the key is valid any longer:
	// the key stays, and has to be rotated to get one. Name only keys rotated since the
	// backup, or values that are in use die.
	RotatedKeys []Ref

	// DeletedWebhooks are the webhooks that were deleted since. They are deleted, with what
	// is pending for them.
	DeletedWebhooks []Ref

	// ErasedAccounts are the accounts that were erased since. All that the backup has of them is
	// erased; what the abandoned file has of them is newer, and stays.
	// Erasures that the restored file has begun are completed.
	ErasedAccounts []string

	// NothingRevoked says that no key was deleted or rotated since the backup.
	NothingRevoked bool

	// NoHold declines that all webhooks are put on hold. What was delivered since the
	// backup is sent again then as soon as the host runs, unless there is an abandoned file.
	NoHold bool

	// RefuseDamaged refuses a file in which [Verify] finds anything wrong. Without it a file whose
	// pages fit is restored, and its damaged rows are in [RestoreInfo.Damaged].
	RefuseDamaged bool

	// Report, unless it is nil, is called with each change and each doubt: one call at a time, before
	// Restore returns. If Restore fails, nothing of it is true.
	Report func(Finding)
}

// A Ref names a key or a webhook.
type Ref struct{ Account, ID string }

// A Finding is a change that [Restore] made, or a delivery in doubt.
type Finding struct {
	Kind    FindingKind
	Account string
	ID      string // of the key, the webhook or the event
	Webhook string // of MayBeSentTwice: the receiver
}

// A FindingKind is the kind of a [Finding].
type FindingKind string

// The kinds of findings.
const (
	KeyDeleted     FindingKind = "key deleted"         // it was deleted since the backup, or nobody could revoke it
	KeyDead        FindingKind = "key without a value" // its value was replaced since the backup, and the new one is not known
	WebhookDeleted FindingKind = "webhook deleted"     // it was deleted since the backup
	MayBeSentTwice FindingKind = "may be sent twice"   // a delivery that was pending at the time of the backup, and may have been sent since
	EventAdded     FindingKind = "event added"         // the backup has it, and the abandoned file never had
	AccountErased  FindingKind = "account erased"      // it was erased since
)

// A RestoreInfo counts the findings of [Restore].
type RestoreInfo struct {
	// LastPublished is the time of the newest event in the restored file; zero if it has none. Without an
	// abandoned file, events published later are lost.
	LastPublished time.Time

	KeysDeleted, KeysDead                       int
	WebhooksHeld, WebhooksDeleted               int
	MayBeSentTwice, EventsAdded, AccountsErased int

	// Damaged are the first 100 rows that [Verify] finds damaged, and MoreDamaged is how
	// many there are besides. They are in the restored file as they are, except keys that the file
	// does not find by their IDs: those are deleted, since nobody could revoke them.
	Damaged     []Problem
	MoreDamaged int
}
