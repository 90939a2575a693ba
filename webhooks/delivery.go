package webhooks

import (
	"slices"
	"time"
)

// A Delivery is one event on its way to one webhook.
type Delivery struct {
	EventID     string
	WebhookID   string
	Type        EventType
	PublishedAt time.Time // when the store took the event in
	State       DeliveryState

	// NextAttemptAt is when a pending delivery is due; it may be in the past. The attempt comes
	// sooner if the receiver was down and recovers.
	NextAttemptAt time.Time

	// Attempts are those that were settled, the first one first; of a delivery that
	// is sent again and again, the last [MaxAttempts].
	Attempts []Attempt
}

// MaxAttempts is how many attempts are kept of a delivery: those whose number is
// lower than the last one's by as much are forgotten.
const MaxAttempts = 100

// A DeliveryState says how far a delivery is.
type DeliveryState string

// The states of a delivery. Redelivering or recovering one that is not pending
// makes it pending again.
const (
	Pending   DeliveryState = "pending"   // an attempt will be made, or is under way
	Delivered DeliveryState = "delivered" // the receiver answered 2xx
	Dead      DeliveryState = "dead"      // given up
	Skipped   DeliveryState = "skipped"   // the webhook was off when the event was published
)

// Failed reports whether the event has not arrived although it should have by now: the
// delivery is Dead or Skipped, or Pending and its last attempt failed. What is redelivered
// after it was dead stays failed until an attempt succeeds; what was skipped or delivered
// before does not fail before an attempt does.
func (d *Delivery) Failed() bool {
	switch d.State {
	case Dead, Skipped:
		return true
	case Pending:
		return len(d.Attempts) > 0 && d.Attempts[len(d.Attempts)-1].Class != ""
	}
	return false
}

// A DeliveryQuery asks for deliveries of a webhook.
type DeliveryQuery struct {
	States []DeliveryState // empty: all
	Failed bool            // only those that [Delivery.Failed]; with States, those that are both
	From   time.Time       // published then or later; zero: since ever
	To     time.Time       // published before; zero: until now
	After  string          // the [DeliveryPage.Next] of the page before; empty: the newest
	Limit  int             // how many at most; at least 1
}

// Matches reports whether the delivery is among those asked for, wherever the
// page begins.
func (q *DeliveryQuery) Matches(d *Delivery) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, d.State)) && (!q.Failed || d.Failed()) &&
		!d.PublishedAt.Before(q.From) && (q.To.IsZero() || d.PublishedAt.Before(q.To))
}

// OnlyFailed reports whether the query asks for nothing but failed deliveries, so that a
// store looks for them among those: it is of Failed, or of no States but Dead and Skipped.
func (q *DeliveryQuery) OnlyFailed() bool {
	other := func(state DeliveryState) bool { return state != Dead && state != Skipped }
	return q.Failed || len(q.States) > 0 && !slices.ContainsFunc(q.States, other)
}

// A DeliveryPage is a part of a list of deliveries, newest first.
type DeliveryPage struct {
	Deliveries []Delivery

	// Next asks for the page that follows; empty if there is none. A page of failed
	// deliveries, of a query with Failed and without States, is full if it has a Next.
	// Other pages may hold fewer deliveries than were asked for, even none, and have a
	// Next nevertheless: looking for what is rare is done in steps. It may be shown to
	// clients: it says nothing of other accounts.
	Next string
}

// An Attempt is one try to deliver an event to a webhook.
type Attempt struct {
	Number    int           // 1 for the first
	StartedAt time.Time     // UTC, to the millisecond
	Duration  time.Duration // to the microsecond
	Status    int           // of the response; 0 if there was none
	Class     ErrorClass    // what kind of failure it was; empty for success
	Error     string        // why it failed, in a few words without secrets; empty for success

	// Response is how the response's body began: at most 1 KiB of valid UTF-8
	// without NUL, what is not that having been replaced. It is the receiver's
	// text: show it as such.
	Response string
}

// ExpiredAttempt returns what is logged of a delivery that ends because its event is older than
// [Retention.Payloads].
func ExpiredAttempt(number int, at time.Time) Attempt {
	return Attempt{
		Number: number, StartedAt: at.UTC().Truncate(time.Millisecond), Class: ClassExpired,
		Error: "no attempt was made: the event was kept as long as events are kept",
	}
}

// An ErrorClass is a kind of failure.
type ErrorClass string

// The classes of failed attempts.
const (
	ClassStatus     ErrorClass = "status"     // a response other than 2xx and 3xx
	ClassRedirect   ErrorClass = "redirect"   // 3xx: redirects are not followed
	ClassTimeout    ErrorClass = "timeout"    // no response in time
	ClassDNS        ErrorClass = "dns"        // the host name has no public address, or could not be looked up
	ClassBlocked    ErrorClass = "blocked"    // the URL's address is in a private or reserved network
	ClassConnect    ErrorClass = "connect"    // nothing answers at the address
	ClassTLS        ErrorClass = "tls"        // no trusted connection
	ClassConnection ErrorClass = "connection" // it broke before the response
	ClassProtocol   ErrorClass = "protocol"   // what came is not an HTTP response
	ClassInternal   ErrorClass = "internal"   // our own: an unreadable record, a panic
	ClassExpired    ErrorClass = "expired"    // no attempt: the event's payload outlived its time, see [Retention]
)

// ours reports whether the class says nothing about the receiver.
func (c ErrorClass) ours() bool { return c == ClassInternal || c == ClassExpired }

// A Recovery is a job that makes deliveries of one webhook pending again, oldest
// first. It survives a restart.
type Recovery struct {
	ID        string // "rec_" and a ULID
	Account   string
	WebhookID string

	// States are those of the deliveries to recover: one or more of Dead,
	// Skipped and Delivered.
	States []DeliveryState

	From time.Time // published then or later
	To   time.Time // published before; what is created with the zero time gets that of just after the last event there is

	CreatedAt time.Time // UTC, to the millisecond
	Recovered int       // deliveries made pending so far
	Done      bool      // nothing is left to do
}
