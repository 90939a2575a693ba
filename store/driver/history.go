package driver

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// ErrRecovering is returned by [History.CreateRecovery] if another recovery of the webhook is not
// done.
var ErrRecovering = errors.New("a recovery of the webhook is already running")

// MaxRecoveries is the number of recoveries kept per webhook; older ones are dropped.
const MaxRecoveries = 100

// History is the part of a [WebhookStore] that returns the outcome of events, makes deliveries
// pending again, and removes old records.
type History interface {
	// EventDeliveries returns the deliveries of an event by ascending webhook ID, or ErrNotFound if
	// the account has no event with that ID. A delivery that was pending when its webhook was
	// deleted is omitted, unless it had been settled earlier and then made pending again.
	EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error)

	// ListDeliveries returns a page of the webhook's deliveries, ordered by when their events were
	// stored, newest first; or ErrNotFound if the account has no webhook with that ID. If
	// query.After is not from a page of that webhook, the result is an arbitrary page. With
	// query.FullPages a page that has a Next holds query.Limit deliveries, and the time to find
	// failed deliveries must hardly depend on the number of other deliveries.
	ListDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) (DeliveryPage, error)

	// EventByID returns an event with its body, and its [StoredEvent.PublishedAt]. The body is nil
	// if it was purged, or if the event had no deliveries and the store did not keep the body.
	// EventByID returns ErrNotFound if the account has no event with that ID.
	EventByID(ctx context.Context, account, eventID string) (event EncodedEvent, publishedAt time.Time, err error)

	// ListEvents returns a page of the account's events, in the order in which they were stored if
	// query.OldestFirst is set, or else in reverse order. It lists every event of which the store
	// still has a record, with or without deliveries. A caller that begins with an OldestFirst page
	// and continues with Resume gets each event that was stored before the last page was made
	// exactly once, unless the event is purged. Concurrent Enqueue calls, clock changes and chosen
	// IDs cause no gaps. If After is not from a page of the store, an OldestFirst query begins at
	// From, so that it repeats events rather than omits them. If After is not from a page of the
	// same account and order, any other query returns an arbitrary page. With query.WebhookID,
	// ListEvents lists the events that have a pending or settled delivery to that webhook. An event
	// whose delivery has expired may be listed or omitted. ListEvents returns ErrNotFound if the
	// account has no webhook with that ID.
	ListEvents(ctx context.Context, account string, query EventQuery) (EventPage, error)

	// Redeliver makes a settled delivery pending and due now, and starts its retries over. A
	// pending delivery becomes due now and continues its retries. The store calls Add with First
	// set for a settled delivery, Nudge for a pending delivery, and Probe in both cases. A running
	// attempt continues, and its result counts. The audit entry is stored in the same step.
	// Redeliver returns ErrNotFound if there is no such delivery, or if its webhook or payload no
	// longer exists.
	Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error

	// CreateRecovery stores a recovery for AdvanceRecovery to carry out. If its To is zero, the
	// recovery covers all events stored so far, even if clocks differ, and To is set to a time
	// after the last of these events. CreateRecovery returns ErrNotFound if the account has no
	// webhook with that ID, ErrExists if a recovery has that ID, and ErrRecovering if another
	// recovery of the webhook is unfinished. The audit entry is stored in the same step. Beyond
	// MaxRecoveries per webhook the oldest recovery is dropped.
	CreateRecovery(ctx context.Context, recovery Recovery, entry audit.Entry) error

	// RecoveryByID returns a recovery, or ErrNotFound.
	RecoveryByID(ctx context.Context, account, id string) (Recovery, error)

	// AdvanceRecovery advances one unfinished recovery by one step; repeated calls serve the
	// webhooks in turn. A step examines about limit deliveries. Settled deliveries become pending
	// and due now if they still have a payload. If the recovery's States include Pending, pending
	// deliveries become due now and continue their retries. Deliveries of events outside the
	// webhook's Resources are left alone. A recovery whose webhook was deleted is done.
	// AdvanceRecovery returns false if all recoveries were already done.
	AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error)

	// Now returns the time by the store's clock, which determines the age of stored records. The
	// clocks of the processes that share the store may differ.
	Now(ctx context.Context) (time.Time, error)

	// Purge removes expired records, the oldest first, at most about purge.Limit records; more
	// reports whether expired records remain. It may also do other maintenance. A store that uses
	// its machine's clock must not trust a clock that was set ahead. It accepts a jump of the clock
	// only after the jump has lasted for a day, see [Purge.Doubting].
	Purge(ctx context.Context, purge Purge) (more bool, err error)
}

// A Purge holds a cutoff time for each kind of record. An event's records have expired if the event
// was published before the cutoff, by the store's clock; see [History.Now].
type Purge struct {
	// Payloads is the expiry time of event bodies. Pending deliveries of an expired event end as
	// Dead, with a logged attempt of ClassExpired. A store need not know about running attempts,
	// because the service makes none for events of that age, see webhooks.Retention.Payloads.
	Payloads time.Time

	// Attempts is the expiry time of attempts and Skipped deliveries, and therefore of all listed
	// deliveries. It also applies to finished recoveries, by their CreatedAt. It must not be after
	// Payloads.
	Attempts time.Time

	// EventIDs is the expiry time of the IDs that detect repeated publications. It must not be
	// after Payloads.
	EventIDs time.Time

	// DedupKeys is the expiry time of deduplication keys: a key has expired if its Until is
	// earlier.
	DedupKeys time.Time

	// AuditEntries is the expiry time of audit entries, including pending ones. Their age counts
	// from when they were stored.
	AuditEntries time.Time

	Limit int // at least 1
}

// Doubting returns the Purge for a store whose clock may be fast by up to ahead. The new expiry
// times are earlier by ahead, so that Purge removes only records that have certainly expired.
func (p Purge) Doubting(ahead time.Duration) Purge {
	for _, before := range []*time.Time{&p.Payloads, &p.Attempts, &p.EventIDs, &p.DedupKeys, &p.AuditEntries} {
		if !before.IsZero() {
			*before = before.Add(-ahead)
		}
	}
	return p
}
