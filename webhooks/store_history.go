package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// MaxRecoveries is how many recoveries of a webhook are kept, the latest.
const MaxRecoveries = 100

// History is the part of a [Store] that tells what became of events, makes deliveries
// pending again, and removes what is old.
type History interface {
	// EventDeliveries returns the deliveries of an event by ascending webhook id, or
	// ErrNotFound if the account has no event of that id. Deliveries that were pending
	// when their webhook was deleted are left out, unless they had been settled before.
	EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error)

	// ListDeliveries returns a part of the webhook's deliveries, in the reverse of the
	// order in which their events were stored, or ErrNotFound if the account has no
	// webhook of that id. A query whose After is not from a page of that webhook returns
	// any page. A page of a query with Failed and without States holds query.Limit deliveries
	// if it has a Next: finding those that failed takes about as long however many have not.
	ListDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) (DeliveryPage, error)

	// EventByID returns an event with its body, which is nil if it was purged, or if the
	// event was for no webhook and the store kept none. ErrNotFound if the account has no event of that id.
	EventByID(ctx context.Context, account, eventID string) (EncodedEvent, error)

	// ListEvents returns a part of the account's events, in the order in which they were
	// stored or, unless query.OldestFirst is set, in its reverse. Those are listed of which
	// anything is kept, whatever became of their deliveries. An OldestFirst page and those
	// that go on by its Resume list each event once that is stored before the last of them is
	// made, unless it is purged; none is left out because its Enqueue was under way, because
	// clocks were set, or for its id. A query whose After is not from a page of the store
	// begins at From if it is OldestFirst: it lists too much rather than too little. Any
	// other query whose After is not from a page of the account and of that order returns any page.
	ListEvents(ctx context.Context, account string, query EventQuery) (EventPage, error)

	// Redeliver makes a settled delivery pending and due now, and its retries begin from
	// the first; a pending one becomes due now, and its retries go on. It is reported with First,
	// or by Nudge, and by Probe; an attempt that is under way goes on, and its result says what
	// becomes of the delivery. The audit entry is stored in the same step. ErrNotFound if there is no
	// such delivery, or its webhook or payload is gone.
	Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error

	// CreateRecovery stores a recovery, to be advanced. If its To is zero it is of all
	// events that are stored by then, by any clock, and To is set to a time after theirs.
	// ErrNotFound if the account has no webhook of that id; ErrExists if there is a
	// recovery of that id; ErrRecovering if there is one of that webhook that is not done. The
	// entry is stored in the same step. A webhook has MaxRecoveries at most: the one that was
	// stored first is forgotten.
	CreateRecovery(ctx context.Context, recovery Recovery, entry audit.Entry) error

	// RecoveryByID returns a recovery, or ErrNotFound.
	RecoveryByID(ctx context.Context, account, id string) (Recovery, error)

	// AdvanceRecovery takes a recovery that is not done, of one webhook after the other in
	// turn, looks at about limit of its next deliveries, and makes those pending and due
	// now that are settled and have a payload. Those that are pending and wait
	// for a later time are due now, if its States have Pending; their retries go on. A recovery whose webhook is gone is done.
	// It returns false if all recoveries are done already.
	AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error)

	// Now returns the time by the store's clock, by which the age of what it stores
	// counts. A process that shares the store may have another clock.
	Now(ctx context.Context) (time.Time, error)

	// Purge removes what is past its time, the oldest first, about limit records at most;
	// more tells that there is more to remove. It may do other housekeeping of the store.
	// A store that goes by the clock of its machine may have had that set ahead: then it
	// believes that so much time has passed only once the clock has said so for a day, see
	// [Purge.Doubting].
	Purge(ctx context.Context, purge Purge) (more bool, err error)
}

// A Purge says what is past its time: what belongs to events that were published
// before the given times, by the store's clock, see [History.Now].
type Purge struct {
	// Payloads are the bodies of events. Pending deliveries end as Dead, with an attempt of
	// ClassExpired logged. A store need not know whether an attempt is under way: the service
	// makes none for events that are as old, see [Retention.Payloads].
	Payloads time.Time

	// Attempts are the attempts made, Skipped deliveries and with them all that
	// is listed, and recoveries that are done, by their creation. Not after
	// Payloads.
	Attempts time.Time

	// EventIDs are how an event published again is known. Not after Payloads.
	EventIDs time.Time

	// DedupKeys removes those whose Until is before it.
	DedupKeys time.Time

	// Audit entries removes audit entries that were stored before it, pending ones, too.
	AuditEntries time.Time

	Limit int // at least 1
}

// Doubting returns the Purge of a store whose clock may have been set ahead by so much:
// it removes what is past its time even if it was.
func (p Purge) Doubting(ahead time.Duration) Purge {
	for _, before := range []*time.Time{&p.Payloads, &p.Attempts, &p.EventIDs, &p.DedupKeys, &p.AuditEntries} {
		if !before.IsZero() {
			*before = before.Add(-ahead)
		}
	}
	return p
}
