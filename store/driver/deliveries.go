package driver

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// Deliveries is the part of a [WebhookStore] that keeps pending deliveries and reports them to a
// [Scheduler], which decides when each is attempted. The store is the source of truth and the
// scheduler's memory a hint. The store reports every pending delivery of this process at least
// once. A duplicate, late or stale report does no harm, because Load returns the current state just
// before each attempt, and Settle stores each attempt number of a delivery once.
//
// Every method of a store that makes a delivery pending, or changes or removes a webhook, reports
// it by the rules of Deliver: pending deliveries by Add, an updated webhook by Webhook, a deleted
// webhook or the beginning of an erasure by Forget.
type Deliveries interface {
	// Enqueue stores the event together with one pending delivery, due now, for each webhook of its
	// account that is active and subscribed to its type at that instant, and returns their number.
	// For each inactive subscribed webhook it stores a Skipped delivery. If the account already has
	// an event with that ID, even a different event, Enqueue stores nothing and returns the first
	// result again. PublishedAt never decreases from one event to the next, even if the clock is
	// set back.
	Enqueue(ctx context.Context, event EncodedEvent) (deliveries int, err error)

	// Deliver reports every pending delivery of this process, and every change to one, to s until
	// ctx is done, and then returns ctx's error; or [store.ErrClosed] if the store is closed.
	//
	//  1. It begins to report new steps before it reads stored deliveries. It reads those in pages
	//     that block no other call, a page of each part in turn. A part that cannot be read is
	//     retried on its own.
	//  2. A step is reported only after its commit: never if it was rolled back, and always if
	//     readers can see it, even if its caller got an error.
	//  3. A step is reported within a second of its commit, or within the poll interval that the
	//     host has set; a single-process store reports it before its call returns.
	//  4. Of several reports of one webhook the highest Version counts, regardless of their order.
	//  5. The methods of s return at once and never call the store, so a step may call them while
	//     it holds locks. None is called once Deliver has returned.
	//
	// A store delivers to one scheduler at a time: a second call waits until the first returns. A
	// store for several processes takes a share of the accounts, and gives it back before Deliver
	// returns; the caller lets attempts end, and settles them, before it ends ctx. After any other
	// error the caller begins again, with an empty scheduler.
	//
	// [store.ErrClosed]: https://pkg.go.dev/github.com/storageapi/storageapi/store#ErrClosed
	Deliver(ctx context.Context, s Scheduler) error

	// Load returns the state of each delivery, in the order of refs. A delivery is not Ready if any
	// process settled, deleted or erased it, or disabled its webhook or put it on hold, before the
	// call began, or if another process may own it by now. A store that cannot write returns its
	// error.
	Load(ctx context.Context, refs []DeliveryRef) ([]LoadedDelivery, error)

	// Settle stores results and health changes in one step. A result counts if its delivery is
	// pending, belongs to this process, and has fewer attempts than Attempt.Number: each number is
	// stored once, so a call with an unknown outcome can be repeated. A health change counts if the
	// webhook belongs to this process and still has that Version, so that it never overwrites a
	// user's change. Results and changes that do not count have no effect; Settled lists their
	// indexes. The caller knows the outcome of its results, so Settle reports only webhooks to the
	// scheduler.
	Settle(ctx context.Context, results []AttemptResult, health []HealthChange) (Settled, error)

	// Probe requests a call of Scheduler.Probe in the process that delivers for the webhook, in the
	// way steps are reported. The request need not survive a crash. ErrNotFound if the account has
	// no such webhook.
	Probe(ctx context.Context, account, webhookID string) error

	// Unreported counts the pending deliveries that were not reported to a scheduler of this
	// process: all of them if there is none. It counts for one webhook, or for all if the ID is
	// empty. Each delivery that was visible before the call is either counted or reported before it
	// returns, so the sum of both misses none. It may take a second per million.
	Unreported(ctx context.Context, webhookID string) (Backlog, error)

	// Ping reports whether the store can be read. It waits for no commit.
	Ping(ctx context.Context) error
}

// A Scheduler receives the reports of [Deliveries.Deliver]. The service implements it. Its methods
// are safe for concurrent use, return at once, and never call the store.
type Scheduler interface {
	// Add reports pending deliveries. The scheduler does not keep the list.
	Add(list []PendingDelivery)

	// Nudge reports that an already pending delivery is now due and comes first for its webhook.
	// Earlier reports of it stay valid, so a Nudge may be dropped.
	Nudge(ref DeliveryRef)

	// Webhook reports a changed webhook. The caller must not modify w afterwards.
	Webhook(w *Webhook)

	// Probe requests an attempt even if the receiver is known to be down.
	Probe(webhookID string)

	// Forget drops the waiting deliveries of the scope and cancels its running attempts: after a
	// deletion, an erasure, or the loss of a group.
	Forget(scope Scope)

	// Ended reports deliveries that are no longer pending although no result was settled, because
	// Purge expired them. The scheduler does not keep the list. A report may be dropped: such
	// deliveries then count as pending until the next Load.
	Ended(refs []DeliveryRef)

	// Pause lets no further attempt begin in the groups, until Forget. UnderWay counts the
	// unsettled attempts by group.
	Pause(groups []Group)
	UnderWay() map[Group]int

	// Trouble reports that pending deliveries cannot be read now, or with nil that all have been
	// read. Deliver calls it with nil once it has reported all deliveries that were stored when it
	// began, and when each trouble ends.
	Trouble(err error)
}

// A DeliveryRef identifies a delivery.
type DeliveryRef struct {
	WebhookID string
	Number    uint64 // set by the store; unique within the webhook
}

// A Group is the unit that a store takes and gives back, such as a shard. It is 0 in a store that
// does neither.
type Group int32

// A Scope is one webhook, one account, or one group: exactly one field is set.
type Scope struct {
	WebhookID, Account string
	Group              Group
}

// A PendingDelivery is reported by [Scheduler.Add].
type PendingDelivery struct {
	Number  uint64
	Webhook *Webhook // shared. Assumed to be on; only Scheduler.Webhook and Load report otherwise.
	Group   Group

	// Due is by the clock of this process: a store whose rows use another clock converts it, and
	// reports no time later than the longest retry from now.
	Due time.Time

	Attempts  int  // made so far
	Before    int  // of Attempts, those before the retries last started over
	Recovered bool // scheduled after all deliveries that are not recovered
	First     bool // scheduled before all other deliveries of its webhook
}

// A LoadedDelivery is a delivery as [Deliveries.Load] found it.
type LoadedDelivery struct {
	State    LoadState
	Webhook  *Webhook     // shared; nil if Gone or Unread
	Event    EncodedEvent // if Ready
	Attempts int          // made so far; if not as reported, the delivery waits until Due
	Before   int          // of Attempts, those before the retries last started over
	Due      time.Time

	// Age is the time since the event of a Ready delivery was published, by Purge's clock. A store
	// that doubts its clock subtracts the doubt, as [Purge.Doubting] does.
	Age time.Duration

	// Err is set if the record of a Ready delivery cannot be read. The unreadable parts of Event
	// and Webhook are zero, except the webhook's ID. Err wraps [errors.ErrUnsupported] if a newer
	// version of the store wrote the record, and [signing.ErrSealed] if a key to read it is
	// missing: then no attempt is used up, since another process can read it.
	Err error
}

// A LoadState tells a scheduler how to treat a delivery.
type LoadState uint8

// The states.
const (
	Gone    LoadState = iota // not pending: forget it
	Ready                    // attempt it
	Passive                  // webhook is off or on hold: keep it until the webhook changes
	Unread                   // owner in doubt, or read limit reached: load it again soon
)

// An AttemptResult is the result of a completed attempt. An attempt that was abandoned has no
// result: its delivery waits again.
type AttemptResult struct {
	DeliveryRef
	Effect     Effect        // Retry, Deliver or GiveUp
	Attempt    Attempt       // to be logged
	RetryAfter time.Duration // wait until the next attempt, for Retry; at least 0
}

// An Effect is what an attempt does to its delivery.
type Effect uint8

// The effects. Stores persist these numbers.
const (
	Retry   Effect = 1 // failed: pending again, due after AttemptResult.RetryAfter
	Deliver Effect = 2 // settled as Delivered
	GiveUp  Effect = 3 // settled as Dead
)

// A HealthChange sets the health of a webhook, as the service decided.
type HealthChange struct {
	Account, WebhookID string
	Version            uint64 // that the decision is based on; the change increments it
	Health             WebhookHealth
	AuditEntries       []audit.Entry // stored if the change counts
}

// Settled has the ascending indexes of the results (Stale) and health changes (Conflicts) that did
// not count.
type Settled struct{ Stale, Conflicts []int }

// A Backlog counts pending deliveries.
type Backlog struct {
	Pending int // including webhooks that are inactive or on hold

	// OldestDue is when the longest due delivery of an active webhook that is not on hold became
	// due; zero if none is due.
	OldestDue time.Time

	// Held is the number of webhooks on hold; 0 if the count is for one webhook.
	Held int
}
