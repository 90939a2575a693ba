package webhooks

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/notices"
)

// A Queue is the part of a [Store] that takes events in and gives deliveries out.
//
// A delivery is either pending or settled. A pending one is due at some time and may be
// leased: a claim leases it to one worker for a while, and gives out a fencing token that
// the worker's settlement must show. A lease that runs out, or whose process died, makes
// the delivery claimable again, under another token, without any cleaning up. Package
// store/queue is such a queue for the deliveries that one process makes.
type Queue interface {
	// Enqueue stores the event together with one pending delivery, due now, for each
	// webhook of its account that is active and subscribed to its type at that instant,
	// and returns their number; for each that is subscribed and inactive it stores a
	// Skipped delivery. If the account has an event of that id already, nothing is stored,
	// even if the two differ, and the first result is returned again. PublishedAt of later
	// events is not before that of earlier ones, also if the clock is set back.
	Enqueue(ctx context.Context, event EncodedEvent) (deliveries int, err error)

	// ClaimDeliveries leases deliveries that are due, as many as claim allows. Webhooks
	// with deliveries due take turns, however many each has due, and over several claims
	// too. Of one webhook the longest due comes first, except what was redelivered. What
	// was recovered comes after all that was not: of its own webhook, and as far as the
	// turns go, of the others. Webhooks that are inactive or on hold are passed over. No tasks is not an
	// error.
	//
	// In a claim for all webhooks, proven and unproven ones take turns as groups, and
	// only those of one group take turns with each other: many unproven webhooks do
	// not keep the proven ones waiting. Within a group a store may let the accounts
	// take turns first, and the webhooks of each among themselves.
	//
	// Claims and settlements at the same moment need not wait for each other: a
	// claim may pass over what another call is busy with.
	//
	// A record that cannot be read any more is claimed too, once its turn comes, as a
	// Task with Err set, so that it can be settled instead of blocking the others.
	//
	// wait is when to claim again at the latest, unless something is enqueued,
	// settled or changed through this Store before: 0 if there may be more at
	// once, never more than an hour. It may be shorter than need be, and has to
	// be where others write to the same store.
	ClaimDeliveries(ctx context.Context, claim Claim) (tasks []Task, wait time.Duration, err error)

	// Probe asks for an attempt to deliver to the webhook even if its receiver is known to
	// be down. The next claim whose Probes allow it, by any process, leases the first of
	// the deliveries that are due or, if none is, the first that becomes due within a
	// minute. Cap, Webhooks and Settlement.Rest do not hold it back; Limit and PerAccount
	// do, and that it is inactive or on hold. A webhook has at most one such task a second, and calls before that ask for
	// nothing more. ErrNotFound if the account has no webhook of that id. What was asked
	// for need not survive a crash.
	Probe(ctx context.Context, account, webhookID string) error

	// SettleDeliveries ends claims. For each settlement it logs the attempt, if there was
	// one, and does what its Outcome, Deactivate and Rest say. Of a delivery it keeps the
	// last MaxAttempts attempts.
	//
	// It keeps the health of the webhook, too. Deliver sets ProvenAt to Attempt.StartedAt
	// if it is zero, and ends the failing ([Webhook.EndFailing]). A settlement that
	// [Settlement.Fails] begins it, at Attempt.StartedAt and with the task's event, or if
	// it has begun, sets FailedAgain unless the event is FailingEvent
	// ([Webhook.NoteFailure]). If the URL of the task is not the webhook's any more, the
	// settlement is of another receiver: it changes nothing of the webhook.
	//
	// If a Deliver ends the failing of a webhook that has failed for a minute, or was to Rest
	// since it began, the receiver has recovered: all that is pending for the webhook and
	// waits for its next attempt is due now. That attempt, if it fails, is followed by one
	// that waits in any case, as is a wait that was Asked for. An UpdateWebhook
	// that ends the failing of a webhook that had succeeded does the same. Lists
	// may still show the later time, and it need not survive a restart of the store.
	//
	// A settlement whose token is not that of the delivery's current lease does nothing,
	// and its index is among those returned, in ascending order; the others are done in
	// one step. A Release without Deactivate and Rest is never among them: it has nothing to
	// do for a delivery that was released or deleted. A lease that ran out stays current until a later claim that does not hold
	// its token in Finished, which may end it even if it gives the delivery to no other
	// worker yet.
	SettleDeliveries(ctx context.Context, settlements []Settlement) (stale []int, err error)

	// Backlog counts what is pending: for the webhook of that id, or for all if it is
	// empty. It sees what every call that has returned did.
	Backlog(ctx context.Context, webhookID string) (Backlog, error)

	// LongestWait returns for how long the webhook that waits longest for a lease has done
	// so, for [WebhookService.Health]. It counts webhooks that a claim for all could lease
	// from: proven ones that are active and not on hold, do not rest, hold no lease
	// that counts, whose Cap was above 0 and whose account had fewer leases
	// than PerAccount when a claim last looked; and of what is pending for them what is
	// due and was not recovered. A webhook waits since the first of that was due, since its
	// last lease ended or since it could not be leased from for another reason, whichever
	// was last. 0: none waits.
	//
	// It is a read, so that it fails if the store cannot be read. It writes nothing, does
	// not wait for what is being committed, and takes about a millisecond however much is
	// pending and for however many webhooks. So it may look at some of the webhooks only,
	// those whose turn comes next; may know to some seconds only when a lease ended; and of
	// a store that several processes share it may tell of what this one claims.
	LongestWait(ctx context.Context) (time.Duration, error)
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

	// LongestRetry is the longest [Settlement.RetryAfter] of the service: a store that reads due times from a
	// database, where clocks may have been wrong, takes none for later than that. 0: not known.
	LongestRetry time.Duration

	// Probes is how many tasks at most may be ones that [Queue.Probe] asked for; 0:
	// none, and what was asked for stays so. Cap, Webhooks and ProvenOnly do not
	// concern them.
	Probes int

	// ProbeCap returns how many of Probes may be for webhooks of an account; nil: any number.
	// If more accounts wait for probes than Probes allows, those come first whose last probe
	// was claimed longest ago. The store calls ProbeCap as it calls Cap, once an account.
	ProbeCap func(account string) int

	// Finished are tokens of leases whose attempts have ended and are about to be
	// settled. They stay current, and need not count any more, in this claim and later
	// ones; a store may count them nevertheless. This claim does not end those that have
	// run out, and leases them for Lease from now: a token that waits for long is named in
	// each claim.
	Finished []uint64
}

// A Task is a claimed delivery.
type Task struct {
	Event   EncodedEvent
	Webhook *Webhook // shared by tasks: do not change it
	Attempt int      // the number of the attempt to make: one more than were made, claims whose lease ran out in this process included
	Before  int      // how many attempts were made before it was last redelivered or recovered: its retries start over after them
	Token   uint64   // unique to this claim

	// Age is how long ago the event was published, see [LoadedDelivery.Age]; 0: not known.
	Age time.Duration

	// Probe tells that [Queue.Probe] asked for it.
	Probe bool

	// Err tells that a stored record could not be read. What could not be read of Event
	// and Webhook is zero, except the webhook's ID. It wraps [errors.ErrUnsupported] if a newer
	// version of the store wrote the record: then it is no attempt, since another process can
	// read it. The same goes for [signing.ErrSealed].
	Err error
}

// A Settlement ends a claim.
type Settlement struct {
	Task    Task    // as it was claimed
	Outcome Outcome // of the delivery
	Attempt Attempt // to be logged, except with Release

	// RetryAfter is in how long the next attempt is due, with Retry and Release; at least
	// 0. With Release it need not survive a restart of the store.
	RetryAfter time.Duration

	// Asked tells that the receiver asked for a wait as long as RetryAfter: it is not
	// shortened when the receiver recovers.
	Asked bool

	// Deactivate makes the webhook inactive in the same step, for that reason, with
	// Attempt.StartedAt as its OffAt; empty: it stays as it is.
	Deactivate OffReason

	// Off is stored in the same step if Deactivate turns the webhook off, which was on.
	// Recovered is stored if a Deliver ends a failing that has a WarnedAt. Nil: nothing is.
	Off, Recovered *notices.Notice

	// Rest, above 0, has all claims pass the webhook over for so long, by the store's
	// clock, since its receiver is down. It goes with a settlement that
	// [Settlement.Fails], and the last to end of several counts. A Deliver or
	// UpdateWebhook ends it, and probes are claimed nevertheless. It need not survive a
	// restart of the store.
	Rest time.Duration
}

// Fails reports whether the receiver failed: what begins or prolongs the failing
// of the webhook.
func (s *Settlement) Fails() bool {
	return (s.Outcome == Retry || s.Outcome == GiveUp) && !s.Attempt.Class.ours()
}

// OnlyReleases reports whether the settlement does no more than end its claim.
func (s *Settlement) OnlyReleases() bool {
	return s.Outcome == Release && s.Deactivate == "" && s.Rest <= 0
}

// An Outcome is how a claim of a delivery ends.
type Outcome uint8

// The outcomes.
const (
	Release Outcome = iota // no attempt was made: pending as before, due after Settlement.RetryAfter
	Retry                  // failed: pending again, due after Settlement.RetryAfter
	Deliver                // settled as Delivered
	GiveUp                 // settled as Dead
)

// A Backlog counts pending deliveries.
type Backlog struct {
	Pending int // those leased, and of webhooks that are inactive or on hold, included

	// OldestDue is since when the longest due delivery waits that is not leased and whose
	// webhook is active and not on hold; zero if none is due.
	OldestDue time.Time

	// Held is how many webhooks are on hold, of all; 0 if one webhook was asked for.
	Held int

	// ExpiredLeases is how many leases that had run out this Store has ended in claims
	// since it was opened, of all webhooks; 0 if one webhook was asked for.
	ExpiredLeases uint64
}
