package webhooks

import (
	"context"
	"time"
)

// A Page asks for a part of a list that is ordered by descending id.
type Page struct {
	After string // the id after which the part begins; empty: at the start
	Limit int    // how many at most; at least 1
}

// A Store keeps webhooks, events and what is owed of them. Backends implement
// it; package storetest proves them.
//
// Every method is one atomic step, and what it reports as done survives a crash.
// If it returns an error of this package or the context's, nothing has happened;
// after any other error the step has happened as a whole or not at all, and the
// caller must cope with both. Package store says what becomes of a call whose context
// ends, whose store is closed, whose commit fails or whose callback does not return.
// Methods are safe for concurrent use and appear to happen one after the other.
//
// Values are copied in and out: neither side sees what the other changes later. The
// bodies of events and the webhooks of tasks are not, for nobody changes them.
// Times come back in UTC, to the millisecond; what is finer is dropped. What ids,
// accounts and URLs mean is the service's business: a store takes any ids and
// accounts of 1 to 128 bytes, and other strings of up to 4,096 bytes, all of them
// UTF-8 without NUL. Ids are ordered byte by byte.
//
// The service gives no id to two accounts; wherever account and id do not belong
// together the answer is ErrNotFound.
//
// # Deliveries
//
// A delivery is either owed or settled. One that is owed is due at some time
// and may be leased: a claim leases it to one worker for a while, and gives out
// a token that the worker's settlement must show. A lease that runs out, or
// whose process died, makes the delivery claimable again, under another token;
// nobody has to clean up. Due times and leases go by the store's clock.
type Store interface {
	// CreateWebhook adds a webhook and, in the same step, notes what request
	// made it, if options name one. [auth.ErrCredentialChanged] if options.By is not what it was, before
	// all else. A [*DuplicateRequestError] if the account has made a
	// request of that name, for a webhook, within options.IdempotencyTTL, whatever it asked
	// for and whether or not its webhook is still there. ErrExists if there is a
	// webhook of that id, in whatever account. ErrLimit if the account has
	// options.MaxCount webhooks already. ErrIdempotencyKeys if options name a request, and
	// options.MaxIdempotencyKeys of the account's are known already. What is returned as an error adds and notes
	// nothing. Each call that notes a request forgets some that are older than
	// options.IdempotencyTTL, so that they do not pile up.
	CreateWebhook(ctx context.Context, webhook Webhook, options CreateOptions) error

	// WebhookByID returns a webhook, or ErrNotFound.
	WebhookByID(ctx context.Context, account, id string) (Webhook, error)

	// ListWebhooks returns a part of the account's webhooks by descending id,
	// which is newest first; an empty list past the end. The id after which
	// the page begins need not exist any more.
	ListWebhooks(ctx context.Context, account string, page Page) ([]Webhook, error)

	// UpdateWebhook calls change with a copy of the webhook, stores what change
	// leaves in it, and returns that. ErrNotFound if there is no such webhook;
	// change's own error if it returns one, and nothing is stored. ID, Account
	// and CreatedAt keep their values whatever change does to them. No other
	// change of the webhook comes between reading and storing; change may run
	// more than once, and must not call the store.
	UpdateWebhook(ctx context.Context, account, id string, change func(*Webhook) error) (Webhook, error)

	// DeleteWebhook removes a webhook and all that it is owed, or returns
	// ErrNotFound. check, unless it is nil, is called with the webhook before: if it
	// returns an error, that is returned and nothing is removed. No other change of
	// the webhook comes between; check may run more than once, and must not call the
	// store. Once it is removed, nothing is claimed for it any more, and settlements
	// of what was claimed before are stale. Its settled deliveries remain. However
	// much it is owed, others do not wait for the removal: as every method sees it, all
	// of it is removed in this step, though its rows may go later, in steps of Purge.
	// A webhook that is created with its id is owed none of it; the creation may have to
	// wait for the rows.
	DeleteWebhook(ctx context.Context, account, id string, check func(Webhook) error) error

	// Enqueue stores the event together with one owed delivery, due now, for
	// each webhook of its account that is active and subscribed to its type at
	// that instant, and returns how many those are; for each that is subscribed
	// and inactive it stores a Skipped delivery. If the account has an event of
	// that id already, nothing is stored, whatever else differs, and the first
	// result is returned again. PublishedAt of later events is not before that
	// of earlier ones, also if the clock is set back.
	Enqueue(ctx context.Context, event EncodedEvent) (deliveries int, err error)

	// UpdateAlert calls change with what is kept of the account's alert, and
	// stores what change leaves of it together with the events, in one step. It
	// returns how many deliveries that made owed. change's own error if it
	// returns one, and nothing is stored. Neither the alert nor the account's
	// webhooks change between reading and storing; change may run more than
	// once, and must not call the store.
	//
	// Hosts report all the time, and mostly nothing new: if change leaves the
	// State as it was, without events, and the alert is not due, nothing is
	// written, nobody waits for those who write, and the answer comes from
	// memory if the store has one process, or else by reading a row.
	UpdateAlert(ctx context.Context, account string, metric Metric, change func(*AlertStep) error) (deliveries int, err error)

	// DueAlerts returns accounts, at most limit, whose alert of MetricBalance is
	// due: CreateWebhook, UpdateWebhook and DeleteWebhook make it so in the same
	// step, if anything is kept of it, and UpdateAlert ends that.
	DueAlerts(ctx context.Context, limit int) (accounts []string, err error)

	// UnseenKeys returns the indexes, ascending, of the deduplication keys that the account
	// does not have.
	UnseenKeys(ctx context.Context, account string, dedupKeys []DedupKey) (fresh []int, err error)

	// EnqueueOnce stores the deduplication keys and, as Enqueue does, the event, in one
	// step. ErrExists if the event's account has one of the deduplication keys already, and
	// nothing is stored.
	EnqueueOnce(ctx context.Context, event EncodedEvent, dedupKeys []DedupKey) (deliveries int, err error)

	// UpdateFileScan calls change with the state of the scan for expiring files, which is
	// one for all who share the store and empty at first, and stores the state that change
	// returns, of at most 4 KiB. If change returns an error, that is returned and nothing is
	// stored. The state does not change between reading and storing; change may run more
	// than once, must not write into the state that it is given, and must not call the store.
	UpdateFileScan(ctx context.Context, change func(state []byte) ([]byte, error)) error

	// ClaimDeliveries leases deliveries that are due, at most claim.Limit, and
	// never so many that one webhook or account has more leased at a time than
	// the claim allows. Webhooks with deliveries due take turns, however many
	// each has due, and over several claims too; of one webhook the longest due
	// comes first, but for what was redelivered. What was recovered comes after all that
	// was not: of its own webhook, and as far as the turns go, of the others. Inactive
	// webhooks are passed over. No tasks is not an error.
	//
	// In a claim for all webhooks, proven and unproven ones take turns as groups, and
	// only those of one group take turns with each other: many unproven webhooks do
	// not keep the proven ones waiting. Within a group a store may let the accounts
	// take turns first, and the webhooks of each among themselves.
	//
	// Claims and settlements at the same moment need not wait for each other: a
	// claim may pass over what another call is busy with.
	//
	// A record that cannot be read any more is claimed too, once its turn
	// comes, as a Task with Err set, so that it can be settled instead of
	// blocking the others.
	//
	// wait is when to claim again at the latest, unless something is enqueued,
	// settled or changed through this Store before: 0 if there may be more at
	// once, never more than an hour. It may be shorter than need be, and has to
	// be where others write to the same store.
	ClaimDeliveries(ctx context.Context, claim Claim) (tasks []Task, wait time.Duration, err error)

	// Probe asks for an attempt to deliver to the webhook, whatever is known of its
	// receiver: the next claim whose Probes allow it, by whichever process, leases what
	// comes next of the deliveries that are due, or if none is, the first that becomes
	// due within a minute; whatever Cap, Webhooks and Settlement.Rest say, but heeding
	// Limit and PerAccount. Of one webhook there is one such task a second at most; more
	// calls before it ask for nothing more. ErrNotFound if the account has no webhook of
	// that id. It need not survive a crash.
	Probe(ctx context.Context, account, webhookID string) error

	// SettleDeliveries ends claims: for each settlement it logs the attempt,
	// if there was one, and settles the delivery, or makes it due again, or
	// just gives back the lease; and it deactivates the webhook if told so. Of a
	// delivery no more than the last MaxAttempts are kept.
	// Deliver sets the webhook's ProvenAt to Attempt.StartedAt if it is zero, and ends
	// its failing ([Webhook.EndFailing]);
	// Retry and GiveUp begin it, at Attempt.StartedAt and with the task's event, if it has not
	// begun and the attempt is not of ClassInternal; if it has, they set FailedAgain if the
	// event is another than FailingEvent ([Webhook.NoteFailure]). A settlement whose task has another URL
	// than the webhook has by now is of another receiver: it changes nothing of the
	// webhook. A settlement whose token is not that of the delivery's current lease
	// does nothing, and its index is among those returned, in ascending order; the
	// others are done in one step. A lease that ran out stays current until a later
	// claim that does not hold its token in Finished, which may end it even if it gives
	// the delivery to nobody yet.
	SettleDeliveries(ctx context.Context, settlements []Settlement) (stale []int, err error)

	// FailingWebhooks returns a part of the webhooks of all accounts that are active, have
	// FailedAgain set and a FailingSince then or before, by descending id. Settlements and
	// UpdateWebhook put them among these and take them out in the same step.
	FailingWebhooks(ctx context.Context, since time.Time, page Page) ([]Webhook, error)

	// EventDeliveries returns what became of an event, by ascending webhook
	// id, or ErrNotFound if the account has no event of that id. Deliveries
	// that were owed to a webhook when it was deleted are left out, unless they
	// had been settled before.
	EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error)

	// ListDeliveries returns a part of the webhook's deliveries, in the reverse
	// of the order in which their events were stored, or ErrNotFound if the
	// account has no webhook of that id. A query whose After is not from a page
	// of that webhook returns any page.
	ListDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) (DeliveryPage, error)

	// Redeliver makes a delivery owed and due now; its retries begin anew. One
	// that is owed already becomes due now, and its retries go on. It is claimed before
	// all else that the webhook is owed, at least until a restart, as one that was not
	// recovered, and Probe is asked of the webhook in the same step. If an attempt is
	// under way nothing changes. ErrNotFound if there is no such delivery, or no
	// webhook or payload for it any more.
	Redeliver(ctx context.Context, account, webhookID, eventID string) error

	// CreateRecovery stores a recovery, to be advanced. If its To is zero it is
	// of all events that are stored by then, whatever the clock says, and To is
	// set to a time after theirs. ErrNotFound if the
	// account has no webhook of that id; ErrExists if there is a recovery of
	// that id; ErrRecovering if there is one of that webhook that is not done.
	CreateRecovery(ctx context.Context, recovery Recovery) error

	// RecoveryByID returns a recovery, or ErrNotFound.
	RecoveryByID(ctx context.Context, account, id string) (Recovery, error)

	// AdvanceRecovery takes a recovery that is not done, of one webhook after the
	// other in turn, and makes its next deliveries owed and due now, after looking
	// at about limit of them.
	// Those that are pending, or without payload, are left as they are. A
	// recovery whose webhook is gone is done. It returns false if all
	// recoveries are done already.
	AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error)

	// Now returns the time by the store's clock, which is that of the events that
	// it stores: what ages is to be told by. Who shares the store with others may
	// have another clock.
	Now(ctx context.Context) (time.Time, error)

	// Purge removes what is past its time, the oldest first, about limit
	// records at most; more tells that there is more to remove. It may do other
	// housekeeping of the store. A store that goes by the clock of its machine
	// does not believe that as much time has passed as that says before it has said
	// so for a day, if it was set ahead or may have been; see [Purge.Doubting].
	Purge(ctx context.Context, purge Purge) (more bool, err error)

	// Backlog tells what is owed: to the webhook of that id, or to all if it is
	// empty. It is not behind what other methods returned before.
	Backlog(ctx context.Context, webhookID string) (Backlog, error)
}

// A Waker is a [Store] that others write to as well, and that hears of it.
type Waker interface {
	// Wake calls wake whenever others may have made deliveries due, until ctx is
	// done: soon after it if it can, and as often as it likes besides. It need not
	// hear of everything: the wait of ClaimDeliveries is kept to, too.
	Wake(ctx context.Context, wake func())
}

// A ConcurrentPurger is a [Store] whose other methods do not wait for Purge.
type ConcurrentPurger interface {
	// PurgesConcurrently does nothing.
	PurgesConcurrently()
}

// A Purge says what is past its time: what belongs to events that were published
// before the given times, by the store's clock, see [Store.Now].
type Purge struct {
	// Payloads are the bodies of events. Deliveries still owed end as Dead,
	// with an attempt of ClassExpired logged that tells why.
	Payloads time.Time

	// Attempts are the attempts made, Skipped deliveries and with them all that
	// is listed, and recoveries that are done, by their creation. Not after
	// Payloads.
	Attempts time.Time

	// EventIDs are how an event published again is known. Not after Payloads.
	EventIDs time.Time

	// DedupKeys removes those whose Until is before it.
	DedupKeys time.Time

	Limit int // at least 1
}

// Doubting returns the Purge of a store whose clock may have been set ahead by so much:
// it removes what is past its time even if it was.
func (p Purge) Doubting(ahead time.Duration) Purge {
	for _, before := range []*time.Time{&p.Payloads, &p.Attempts, &p.EventIDs, &p.DedupKeys} {
		if !before.IsZero() {
			*before = before.Add(-ahead)
		}
	}
	return p
}

// A Backlog is what is owed.
type Backlog struct {
	Pending int // deliveries owed, those leased and of inactive webhooks included

	// OldestDue is since when the longest due delivery waits that is not leased
	// and whose webhook is active; zero if none is due.
	OldestDue time.Time

	// ExpiredLeases is how many leases that had run out this Store has ended in claims,
	// since it was opened, of whatever webhooks; 0 if one webhook was asked for.
	ExpiredLeases uint64
}

// A Claim says how much to lease. Earlier leases count too.
type Claim struct {
	Limit int           // tasks at most; at least 1
	Lease time.Duration // how long; longer than an attempt can take

	// PerAccount is how many leases an account has at most; 0: any number.
	PerAccount int

	// Cap returns how many leases a webhook may have at most; nil: any number. The store
	// calls it during the call only, one call at a time. It must be quick, and must not
	// call the store.
	Cap func(webhookID string, proven bool) int

	// CapVersion lets a store pass over webhooks whose cap was 0, without asking again:
	// as long as it stays the same from claim to claim, their cap is still 0. It goes
	// with the claims that are not for Webhooks. 0: Cap may have changed in any way.
	CapVersion uint64

	// Webhooks are the ids of the webhooks to claim for, each once; empty: all.
	Webhooks []string

	// ProvenOnly is how many of Limit are for proven webhooks only, see
	// [Webhook.Proven], if the claim is for all webhooks.
	ProvenOnly int

	// Probes is how many tasks at most may be ones that [Store.Probe] asked for; 0:
	// none, and what was asked for stays so. Cap, Webhooks and ProvenOnly do not
	// concern them.
	Probes int

	// Finished are tokens of leases whose attempts have ended and are about to be
	// settled: they stay current, and need not count any more, in this claim
	// and later ones. A store may count them nevertheless. Those that have run out
	// this claim does not end, and leases them for Lease from now: what is to be
	// settled for long is told again in each claim.
	Finished []uint64
}

// A Task is a claimed delivery.
type Task struct {
	Event   EncodedEvent
	Webhook *Webhook // shared by tasks: nobody changes it
	Attempt int      // the number of the attempt to make: one more than were made, claims whose lease ran out in this process included
	Before  int      // how many attempts were made before it was last redelivered or recovered: its retries begin anew after them
	Token   uint64   // unique to this claim

	// Probe tells that [Store.Probe] asked for it.
	Probe bool

	// Err tells that a stored record could not be read. What could not be
	// read of Event and Webhook is zero, but for the webhook's ID.
	Err error
}

// A Settlement ends a claim.
type Settlement struct {
	Task    Task    // as it was claimed
	Outcome Outcome // what becomes of the delivery
	Attempt Attempt // to be logged, except with Release

	// RetryAfter is in how long the next attempt is due, with Retry; at least
	// 0.
	RetryAfter time.Duration

	// Deactivate makes the webhook inactive in the same step, for that reason;
	// empty: it stays as it is.
	Deactivate OffReason

	// Rest is for how long the webhook, whose receiver is down, is to be left alone; 0:
	// it need not be. It goes with a settlement that [Settlement.Fails]. Until then, by
	// the store's clock, or until a Deliver or UpdateWebhook, all claims pass the webhook
	// over, but for probes. Of several the last to end counts. It need not survive a
	// restart of the store.
	Rest time.Duration
}

// Fails reports whether the receiver failed: what begins or prolongs the failing
// of the webhook.
func (s *Settlement) Fails() bool {
	return (s.Outcome == Retry || s.Outcome == GiveUp) && s.Attempt.Class != ClassInternal
}

// An Outcome is what becomes of a claimed delivery.
type Outcome uint8

// The outcomes.
const (
	Release Outcome = iota // no attempt was made: owed as before, due at once
	Retry                  // failed: owed again, due after Settlement.RetryAfter
	Deliver                // settled as Delivered
	GiveUp                 // settled as Dead
)
