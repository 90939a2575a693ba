package driver

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// Deliveries is the part of a [WebhookStore] that keeps pending deliveries and reports them to a
// [Scheduler], which decides when each delivery is attempted. The store is the source of truth; the
// scheduler's memory is only a hint. The store reports every pending delivery of this process at
// least once. A duplicate, late or stale report does no harm, because Load returns the current
// state just before each attempt, and Settle stores only one result for each attempt number of a
// delivery.
//
// Every method that makes a delivery pending, or that changes or removes a webhook, reports this to
// the scheduler under the rules of Deliver. It calls Add for pending deliveries, Webhook for an
// updated webhook, and Forget for a deleted webhook or at the beginning of an erasure.
type Deliveries interface {
	// Enqueue stores the event and, for each webhook of its account that is active and subscribed
	// to its type at that moment (see [Webhook.Subscribes]), and whose Resources allow the event's,
	// one pending delivery that is due now. It returns the number of these deliveries. For each
	// inactive webhook that would get the event it stores a Skipped delivery. If the account already
	// has an event with that ID, even if its content differs, Enqueue stores nothing and returns the
	// result of the first call. PublishedAt never decreases from one event to the next, even if the
	// clock is set back.
	Enqueue(ctx context.Context, event EncodedEvent) (deliveries int, err error)

	// Deliver reports to s every pending delivery of this process and every change to one. It runs
	// until ctx is done and then returns ctx's error, or until the store is closed and then returns
	// [store.ErrClosed].
	//
	//  1. Deliver begins to report new steps before it reads the stored deliveries. It reads them
	//     in pages that block no other call, one page from each part of the store in turn. If a
	//     part cannot be read, Deliver retries that part and continues with the others.
	//  2. A step is reported only after its commit. A step that was rolled back is never reported.
	//     A step that readers can see is always reported, even if its caller got an error.
	//  3. A step is reported within a second of its commit, or within the poll interval that the
	//     host has set; a single-process store reports it before its call returns.
	//  4. If a webhook is reported several times, the report with the highest Version counts,
	//     regardless of the order.
	//  5. The methods of s return at once and never call the store, so a step may call them while
	//     it holds locks. No method of s is called after Deliver has returned.
	//
	// A store delivers to one scheduler at a time: a second call to Deliver waits until the first
	// returns. A store shared by several processes claims a share of the accounts and releases it
	// before Deliver returns, so the caller must let running attempts finish, and settle them,
	// before it cancels ctx. After any other error the caller calls Deliver again, with an empty
	// scheduler.
	//
	// [store.ErrClosed]: https://pkg.go.dev/github.com/storageapi/storageapi/store#ErrClosed
	Deliver(ctx context.Context, s Scheduler) error

	// Load returns the state of each delivery, in the order of refs. A delivery is not Ready if,
	// before the call began, any process settled, deleted or erased it, disabled its webhook, or
	// put its webhook on hold. It is not Ready either if another process may own it by now. If the
	// store cannot write, Load returns the error that a write would return.
	Load(ctx context.Context, refs []DeliveryRef) ([]LoadedDelivery, error)

	// Settle stores results and health changes in one step. A result counts if its delivery is
	// pending, belongs to this process, and has fewer attempts than Attempt.Number. Each attempt
	// number is therefore stored once, and a call with an unknown outcome can be repeated. A health
	// change counts if the webhook belongs to this process and still has the Version of the change,
	// so it never overwrites a user's change. Results and health changes that do not count have no
	// effect, and Settled lists their indexes. Settle reports only changed webhooks to the
	// scheduler, because the caller already knows the results.
	Settle(ctx context.Context, results []AttemptResult, health []HealthChange) (Settled, error)

	// Probe requests a call to Scheduler.Probe in the process that delivers for the webhook. The
	// request reaches that process like a reported step, but need not survive a crash. Probe
	// returns ErrNotFound if the account has no such webhook.
	Probe(ctx context.Context, account, webhookID string) error

	// Unreported counts the pending deliveries that have not been reported to a scheduler of this
	// process, or all pending deliveries if no scheduler is running. If webhookID is not empty,
	// Unreported counts only deliveries to that webhook. Every delivery visible before the call is
	// either counted or reported before the call returns. Unreported may take a second per million
	// deliveries.
	Unreported(ctx context.Context, webhookID string) (Backlog, error)

	// Ping returns an error if the store cannot be read. It does not wait for commits.
	Ping(ctx context.Context) error
}

// A Scheduler receives the reports of [Deliveries.Deliver]. The service implements it. Its methods
// are safe for concurrent use, return at once, and never call the store.
type Scheduler interface {
	// Add reports pending deliveries. The scheduler does not keep the list.
	Add(list []PendingDelivery)

	// Nudge reports that a delivery that is already pending is now due and goes ahead of all other
	// deliveries of its webhook. Earlier reports of it stay valid, so a Nudge may be dropped.
	Nudge(ref DeliveryRef)

	// Webhook reports a changed webhook. The caller must not modify w afterwards.
	Webhook(w *Webhook)

	// Probe requests an attempt for the webhook even if its receiver is known to be down.
	Probe(webhookID string)

	// Forget drops the waiting deliveries of the scope and cancels its running attempts. The store
	// calls it after a deletion, at the beginning of an erasure, and after this process has lost a
	// group.
	Forget(scope Scope)

	// Ended reports deliveries that Purge has ended, without a settled result, because their events
	// expired. The scheduler does not keep the list. A report may be dropped; its deliveries then
	// count as pending until the next Load.
	Ended(refs []DeliveryRef)

	// Pause stops the scheduler from beginning attempts in the groups until Forget is called.
	// UnderWay returns the number of unsettled attempts of each group.
	Pause(groups []Group)
	UnderWay() map[Group]int

	// Trouble reports an error that currently prevents the store from reading some pending
	// deliveries. nil means that all of them have been read. Deliver calls Trouble(nil) once it has
	// reported all deliveries that were stored when it began, and again each time such an error has
	// ended.
	Trouble(err error)
}

// A DeliveryRef identifies a delivery.
type DeliveryRef struct {
	WebhookID string
	Number    uint64 // set by the store; unique within the webhook
}

// A Group is a part of the accounts that a store claims and releases as a whole, such as a shard.
// It is 0 in a store that does not claim parts.
type Group int32

// A Scope selects one webhook, one account or one group. Exactly one field is set.
type Scope struct {
	WebhookID, Account string
	Group              Group
}

// A PendingDelivery reports a pending delivery to [Scheduler.Add].
type PendingDelivery struct {
	Number  uint64
	Webhook *Webhook // shared; claimable unless Scheduler.Webhook or Load says otherwise
	Group   Group

	// Due is when the next attempt is due, by the clock of this process. A store whose rows use
	// another clock converts the time, and limits it to the longest retry wait from now.
	Due time.Time

	Attempts  int  // made so far
	Before    int  // attempts made before the retries last started over
	Recovered bool // scheduled after all deliveries that are not Recovered
	First     bool // scheduled before all other deliveries of its webhook
}

// A LoadedDelivery is the state of a delivery that [Deliveries.Load] has read.
type LoadedDelivery struct {
	State    LoadState
	Webhook  *Webhook     // shared; nil if Gone or Unread
	Event    EncodedEvent // set if Ready
	Attempts int          // made so far; if it differs from the reported number, the delivery waits until Due
	Before   int          // attempts made before the retries last started over
	Due      time.Time

	// Age is the time since the event of a Ready delivery was published, by the clock that Purge
	// uses. A store that does not fully trust its clock subtracts the possible error, as
	// [Purge.Doubting] does.
	Age time.Duration

	// Err is set if the record of a Ready delivery cannot be read. The unreadable parts of Event
	// and Webhook are zero, except the webhook's ID. Err wraps [errors.ErrUnsupported] if a newer
	// version of the store wrote the record, and [signing.ErrSealed] if a key to read it is
	// missing. In both cases no attempt is used up, because another process may be able to read the
	// record.
	Err error
}

// A LoadState says how a scheduler must treat a delivery.
type LoadState uint8

// The states.
const (
	Gone    LoadState = iota // not pending: forget it
	Ready                    // attempt it
	Passive                  // webhook is off or on hold: keep it until the webhook changes
	Unread                   // owner uncertain, or read limit reached: load it again soon
)

// An AttemptResult describes a completed attempt and its effect. An abandoned attempt has no
// result; its delivery goes back to waiting.
type AttemptResult struct {
	DeliveryRef
	Effect     Effect        // Retry, Deliver or GiveUp
	Attempt    Attempt       // to be logged
	RetryAfter time.Duration // wait until the next attempt, for Retry; at least 0
}

// An Effect says what happens to a delivery after an attempt.
type Effect uint8

// The effects. Stores persist these numbers.
const (
	Retry   Effect = 1 // failed: pending again, due after AttemptResult.RetryAfter
	Deliver Effect = 2 // settled as Delivered
	GiveUp  Effect = 3 // settled as Dead
)

// A HealthChange sets the health of a webhook to the value that the service has computed.
type HealthChange struct {
	Account, WebhookID string
	Version            uint64 // version on which the decision is based; the change increments it
	Health             WebhookHealth
	AuditEntries       []audit.Entry // stored if the change counts
}

// Settled has the ascending indexes of the results (Stale) and health changes (Conflicts) that did
// not count.
type Settled struct{ Stale, Conflicts []int }

// A Backlog counts pending deliveries.
type Backlog struct {
	Pending int // includes deliveries of webhooks that are inactive or on hold

	// OldestDue is the earliest due time of all pending deliveries that are due and whose webhooks
	// are active, not on hold and not paused. It is zero if there are none.
	OldestDue time.Time

	// Held is the number of webhooks on hold; 0 if the count is for one webhook.
	Held int
}
