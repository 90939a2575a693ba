package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// Deliveries is the part of a store that keeps pending deliveries and reports them to a
// [Scheduler], which decides when each is attempted. The store is the truth and the
// scheduler's memory a hint: every pending delivery of this process is reported at least once,
// and a report that is doubled, late or stale does no harm, because Load returns the true
// state just before each attempt, and Settle stores each attempt number of a delivery once.
//
// Every method of a store that makes a delivery pending, or changes or removes a webhook,
// reports it by the rules of Deliver: pending deliveries by Add, a webhook after an update by
// Webhook, a deleted webhook or the beginning of an erasure by Forget.
type Deliveries interface {
	// Enqueue stores the event together with one pending delivery, due now, for each
	// webhook of its account that is active and subscribed to its type at that instant,
	// and returns their number; for each that is subscribed and inactive it stores a
	// Skipped delivery. If the account already has an event of that ID, nothing is stored,
	// even if the two differ, and the first result is returned again. PublishedAt of later
	// events is not before that of earlier ones, also if the clock is set back.
	Enqueue(ctx context.Context, event EncodedEvent) (deliveries int, err error)

	// Deliver reports every pending delivery of this process, and every change to one, to s
	// until ctx is done, and then returns ctx's error; or [store.ErrClosed] if the store is
	// closed.
	//
	//  1. It begins to report new steps before it reads what is stored. It reads that in pages
	//     that hold up no other call, a page of each part in turn. A part that cannot be read
	//     is retried on its own.
	//  2. A step is reported after its commit and never before: never if it was rolled back,
	//     and always if readers can see it, whatever error its caller got.
	//  3. A step is reported within a second of its commit, or within the poll interval that
	//     the host has set; by a store of one process before its call returns.
	//  4. Of several reports of one webhook the one with the highest Version counts, in
	//     whatever order they arrive.
	//  5. The methods of s return at once and never call the store, so that a step may call them
	//     while it holds locks. None is called once Deliver has returned.
	//
	// A store delivers to one scheduler at a time: a second call waits until the first
	// returns. A store for several processes takes a share of the accounts, and gives it back
	// before Deliver returns; the caller lets attempts end, and settles them, before it ends
	// ctx. After any other error the caller begins again, with an empty scheduler.
	//
	// [store.ErrClosed]: https://pkg.go.dev/github.com/storageapi/storageapi/store#ErrClosed
	Deliver(ctx context.Context, s Scheduler) error

	// Load returns the state of each delivery, in the order of refs. None is Ready that was
	// settled, deleted or erased, or whose webhook was turned off or put on hold, by any
	// process, before the call began; or that another process may own by now. A store that
	// cannot write returns its error.
	Load(ctx context.Context, refs []DeliveryRef) ([]LoadedDelivery, error)

	// Settle stores results and health in one step. A result counts if its delivery is
	// pending, is this process's, and has fewer attempts than Attempt.Number: each number is
	// stored once, so a call whose outcome is unknown can be repeated. A change of health
	// counts if the webhook is this process's and still has that Version: what a person
	// changed in between is never overwritten. What does not count does nothing, and Settled
	// has its index. The caller knows what becomes of its results, so only webhooks are
	// reported to the scheduler.
	Settle(ctx context.Context, results []AttemptResult, health []HealthChange) (Settled, error)

	// Probe has Scheduler.Probe called in the process that delivers for the webhook, as a step
	// is reported. It need not survive a crash. ErrNotFound if the account has no such webhook.
	Probe(ctx context.Context, account, webhookID string) error

	// Unreported counts the pending deliveries that were not reported to a scheduler of this
	// process: all of them if there is none. It counts those of one webhook, or of all if the ID
	// is empty. What a reader could see before the call is either counted or was reported before
	// it returns, so that no sum of both misses a delivery. It may take a second for each million.
	Unreported(ctx context.Context, webhookID string) (Backlog, error)

	// Ping reports whether the store can be read. It waits for no commit.
	Ping(ctx context.Context) error
}

// A Scheduler receives the reports of [Deliveries.Deliver]. The service implements it. Its
// methods are safe for concurrent use, return at once, and never call the store.
type Scheduler interface {
	// Add reports pending deliveries. The scheduler does not keep the list.
	Add(list []PendingDelivery)

	// Nudge reports that a delivery that was pending before is to be the next of its webhook,
	// due now. What was reported of it before stays, so a Nudge may be dropped.
	Nudge(ref DeliveryRef)

	// Webhook reports a webhook after a change. It must not be changed afterwards.
	Webhook(w *Webhook)

	// Probe requests an attempt although the receiver is known to be down.
	Probe(webhookID string)

	// Forget drops what waits in the scope and cuts short the attempts under way there: after
	// a deletion, an erasure, or the loss of a group.
	Forget(scope Scope)

	// Ended reports deliveries that are no longer pending, although no result was settled: Purge
	// has expired them. The scheduler does not keep the list. It may be dropped: until the next
	// Load such deliveries count as pending.
	Ended(refs []DeliveryRef)

	// Pause lets no further attempt begin in the groups, until Forget. UnderWay counts the
	// attempts that have begun and are not settled, by group.
	Pause(groups []Group)
	UnderWay() map[Group]int

	// Trouble reports that pending deliveries cannot be read now, or with nil that all are
	// read: Deliver calls it once it has reported everything that was stored when it began,
	// and after each trouble.
	Trouble(err error)
}

// A DeliveryRef names a delivery.
type DeliveryRef struct {
	WebhookID string
	Number    uint64 // the store's; unique to the webhook
}

// A Group is what a store takes and gives back as one, such as a shard. It is 0 in a store
// that does neither.
type Group int32

// A Scope is one webhook, one account, or one group: one field is set.
type Scope struct {
	WebhookID, Account string
	Group              Group
}

// A PendingDelivery is reported by [Scheduler.Add].
type PendingDelivery struct {
	Number  uint64
	Webhook *Webhook // shared. The scheduler takes it to be on: only Scheduler.Webhook and Load say that it is not.
	Group   Group

	// Due is by the clock of this process: a store whose rows go by another clock
	// converts it, and reports nothing later than the longest retry from now.
	Due time.Time

	Attempts  int  // made so far
	Before    int  // of them, those before it was last sent again
	Recovered bool // it comes after all deliveries that are not
	First     bool // it comes before all other deliveries of its webhook
}

// A LoadedDelivery is a delivery as [Deliveries.Load] found it.
type LoadedDelivery struct {
	State    LoadState
	Webhook  *Webhook     // shared; nil if Gone or Unread
	Event    EncodedEvent // if Ready
	Attempts int          // made so far; if other than was reported, the delivery waits until Due
	Before   int          // of them, those before it was last sent again
	Due      time.Time

	// Age is how long ago the event of a Ready delivery was published, by the clock of Purge: a
	// store that doubts its clock subtracts the doubt, as [Purge.Doubting] does.
	Age time.Duration

	// Err says that a Ready delivery has a record that cannot be read. What could not be read of
	// Event and Webhook is zero, except the webhook's ID. It wraps [errors.ErrUnsupported] if a
	// newer version of the store wrote the record, and [signing.ErrSealed] if a key to read it is
	// missing: then no attempt is used up, since another process can read it.
	Err error
}

// A LoadState says what a scheduler does with a delivery.
type LoadState uint8

// The states.
const (
	Gone    LoadState = iota // forget it: it is not pending
	Ready                    // attempt it
	Passive                  // keep it until its webhook, which is off or on hold, changes
	Unread                   // load it again soon: its owner is in doubt, or the call has read enough
)

// An AttemptResult ends an attempt that was made. One that came to nothing has none: its
// delivery waits again.
type AttemptResult struct {
	DeliveryRef
	Outcome    Outcome       // Retry, Deliver or GiveUp
	Attempt    Attempt       // to be logged
	RetryAfter time.Duration // until the next attempt, with Retry; at least 0
}

// An Outcome says what becomes of a delivery after an attempt.
type Outcome uint8

// The outcomes. Stores keep these numbers.
const (
	Retry   Outcome = 1 // failed: pending again, due after AttemptResult.RetryAfter
	Deliver Outcome = 2 // settled as Delivered
	GiveUp  Outcome = 3 // settled as Dead
)

// A HealthChange sets the health of a webhook to what the service decided.
type HealthChange struct {
	Account, WebhookID string
	Version            uint64 // of the webhook on which it was decided; the webhook gets the next one
	Health             WebhookHealth
	AuditEntries       []audit.Entry // stored if the change counts
}

// Settled has the indexes, ascending, of the results and of the changes of health that did
// not count.
type Settled struct{ Stale, Conflicts []int }

// A Backlog counts pending deliveries.
type Backlog struct {
	Pending int // those of webhooks that are inactive or on hold included

	// OldestDue is since when the longest due delivery waits whose webhook is active and not on
	// hold; zero if none is due.
	OldestDue time.Time

	// Held is how many webhooks are on hold, of all; 0 if one webhook was asked for.
	Held int
}
