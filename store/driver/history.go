package driver

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// ErrRecovering is returned by [History.CreateRecovery] if another recovery of the webhook is not
// done.
var ErrRecovering = errors.New("a recovery of the webhook is under way")

// MaxRecoveries is the number of recoveries kept per webhook; older ones are dropped.
const MaxRecoveries = 100

// History is the part of a [WebhookStore] that returns the outcome of events, makes deliveries pending
// again, and removes old records.
type History interface {
	// EventDeliveries returns the deliveries of an event by ascending webhook ID, or ErrNotFound if
	// the account has no event with that ID. Deliveries that were pending when their webhook was
	// deleted are left out, unless they had been settled before.
	EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error)

	// ListDeliveries returns a page of the webhook's deliveries, in the reverse of the order in
	// which their events were stored, or ErrNotFound if the account has no webhook with that ID. If
	// query.After is not from a page of that webhook, the result is an arbitrary page. With Failed
	// and without States, a page that has a Next holds query.Limit deliveries: the time to find
	// failed deliveries hardly depends on the number of others.
	ListDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) (DeliveryPage, error)

	// EventByID returns an event with its body. The body is nil if it was purged, or if the event
	// was for no webhook and the store kept none. ErrNotFound if the account has no event with that
	// ID.
	EventByID(ctx context.Context, account, eventID string) (EncodedEvent, error)

	// ListEvents returns a page of the account's events, in the order in which they were stored or,
	// unless query.OldestFirst is set, in reverse. It lists every event of which any record is
	// kept, regardless of its deliveries. An OldestFirst page and the pages that follow its Resume
	// list exactly once each event that is stored before the last page is made, unless it is
	// purged; concurrent Enqueue calls, clock changes and chosen IDs cause no gaps. An OldestFirst
	// query whose After is not from a page of the store begins at From, and so lists too much
	// rather than too little. Any other query whose After is not from a page of the same account
	// and order returns an arbitrary page.
	ListEvents(ctx context.Context, account string, query EventQuery) (EventPage, error)

	// Redeliver makes a settled delivery pending and due now, and its retries start over; a pending
	// one becomes due now, and its retries continue. The store reports it with First, or by Nudge,
	// and by Probe. A running attempt continues, and its result decides the delivery's outcome. The
	// audit entry is stored in the same step. ErrNotFound if there is no such delivery, or its
	// webhook or payload is gone.
	Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error

	// CreateRecovery stores a recovery, to be advanced. If its To is zero it covers all events
	// stored so far, by any clock, and To is set to a time after the last of them. ErrNotFound if
	// the account has no webhook with that ID; ErrExists if a recovery has that ID; ErrRecovering
	// if another recovery of the webhook is not done. The entry is stored in the same step. Beyond
	// MaxRecoveries per webhook the oldest recovery is dropped.
	CreateRecovery(ctx context.Context, recovery Recovery, entry audit.Entry) error

	// RecoveryByID returns a recovery, or ErrNotFound.
	RecoveryByID(ctx context.Context, account, id string) (Recovery, error)

	// AdvanceRecovery advances one unfinished recovery; webhooks take turns. It examines about
	// limit of its next deliveries, and makes settled deliveries with a payload pending and due
	// now. If its States include Pending, waiting deliveries become due now and their retries
	// continue. A recovery whose webhook is gone is done. It returns false if all recoveries were
	// already done.
	AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error)

	// Now returns the time by the store's clock, which determines the age of stored records. Other
	// processes that share the store may have other clocks.
	Now(ctx context.Context) (time.Time, error)

	// Purge removes expired records, the oldest first, about limit records at most; more reports
	// whether there is more to remove. It may also do other maintenance. A store that uses its
	// machine's clock must allow for a clock that was set ahead. It accepts a jump only once the
	// clock has kept it for a day, see [Purge.Doubting].
	Purge(ctx context.Context, purge Purge) (more bool, err error)
}

// A Purge holds the expiry times: records of events that were published before the given times, by
// the store's clock, have expired. See [History.Now].
type Purge struct {
	// Payloads is for the bodies of events. Pending deliveries end as Dead, with a logged attempt
	// of ClassExpired. A store need not know about running attempts: the service makes none for
	// events of that age, see webhooks.Retention.Payloads.
	Payloads time.Time

	// Attempts is for attempts and Skipped deliveries, and so for all listed deliveries, and for
	// finished recoveries, by their creation. Not after Payloads.
	Attempts time.Time

	// EventIDs is for the IDs that detect repeated publications. Not after Payloads.
	EventIDs time.Time

	// DedupKeys is for deduplication keys whose Until is before it.
	DedupKeys time.Time

	// AuditEntries is for audit entries, including pending ones, by when they were stored.
	AuditEntries time.Time

	Limit int // at least 1
}

// Doubting returns the Purge of a store whose clock may be ahead by up to ahead. It removes only
// records that have expired even if the clock is ahead.
func (p Purge) Doubting(ahead time.Duration) Purge {
	for _, before := range []*time.Time{&p.Payloads, &p.Attempts, &p.EventIDs, &p.DedupKeys, &p.AuditEntries} {
		if !before.IsZero() {
			*before = before.Add(-ahead)
		}
	}
	return p
}
