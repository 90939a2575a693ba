package driver

import (
	"net/http"
	"slices"
	"time"

	"github.com/storageapi/storageapi/auth"
)

// A Delivery is the delivery of one event to one webhook.
type Delivery struct {
	EventID     string
	WebhookID   string
	Type        EventType
	Resource    string    // of the event
	PublishedAt time.Time // when the store accepted the event
	State       DeliveryState

	// NextAttemptAt is when a pending delivery is due; it may be in the past. The attempt is made
	// earlier if the receiver was down and recovers.
	NextAttemptAt time.Time

	// Attempts are the settled attempts, oldest first; at most the last [MaxAttempts].
	Attempts []Attempt
}

// MaxAttempts is the number of attempts kept per delivery; older ones are dropped.
const MaxAttempts = 100

// A DeliveryState is the state of a delivery.
type DeliveryState string

// The states of a delivery. Redelivering or recovering a settled delivery makes it pending again.
const (
	Pending   DeliveryState = "pending"   // an attempt will be made, or is in flight
	Delivered DeliveryState = "delivered" // the receiver answered 2xx
	Dead      DeliveryState = "dead"      // given up: out of retries, 410 Gone, or the event expired
	Skipped   DeliveryState = "skipped"   // the webhook was off when the event was published
)

// Failed reports whether the event should have arrived by now but has not: the delivery is Dead or
// Skipped, or it is Pending and its last attempt failed. A dead delivery that is redelivered stays
// failed until an attempt succeeds. A redelivery of a skipped or delivered delivery counts as
// failed only after another failed attempt.
func (d *Delivery) Failed() bool {
	switch d.State {
	case Dead, Skipped:
		return true
	case Pending:
		return len(d.Attempts) > 0 && d.Attempts[len(d.Attempts)-1].Class != ""
	}
	return false
}

// A DeliveryQuery selects deliveries of a webhook.
type DeliveryQuery struct {
	States    []DeliveryState // empty means all
	Types     []EventType     // empty means all
	Resources auth.Resources  // only events of these resources; zero means all
	Failed    bool            // only failed deliveries, see [Delivery.Failed]; States and Types apply as well
	From      time.Time       // published at this time or later; zero means no limit
	To        time.Time       // published before this time; zero means no limit
	After     string          // [DeliveryPage.Next] of the previous page; empty means the first page
	Limit     int             // page size; at least 1
}

// Matches reports whether the query selects the delivery, regardless of where the page begins.
func (q *DeliveryQuery) Matches(d *Delivery) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, d.State)) && (len(q.Types) == 0 || slices.Contains(q.Types, d.Type)) &&
		q.Resources.Allows(d.Resource) &&
		(!q.Failed || d.Failed()) &&
		!d.PublishedAt.Before(q.From) && (q.To.IsZero() || d.PublishedAt.Before(q.To))
}

// OnlyFailed reports whether the query selects only failed deliveries, so that a store can use an
// index of failed deliveries: Failed is set, or States contain only Dead and Skipped.
func (q *DeliveryQuery) OnlyFailed() bool {
	other := func(state DeliveryState) bool { return state != Dead && state != Skipped }
	return q.Failed || len(q.States) > 0 && !slices.ContainsFunc(q.States, other)
}

// FullPages reports whether each page that has a Next must be full. Otherwise a page may end early,
// because the store searches for rare deliveries in steps.
func (q *DeliveryQuery) FullPages() bool {
	return q.Failed && len(q.States) == 0 && len(q.Types) == 0 && q.Resources.IsZero()
}

// A DeliveryPage is one page of a list of deliveries, newest first.
type DeliveryPage struct {
	Deliveries []Delivery

	// Next is the [DeliveryQuery.After] of the following page; empty if there is none. Unless the
	// query has [DeliveryQuery.FullPages], a page may hold fewer deliveries than Limit, even none,
	// and still have a Next. Next is safe to show to clients, since it reveals nothing about other
	// accounts.
	Next string
}

// An Attempt is one try to deliver an event to a webhook.
type Attempt struct {
	Number    int           // 1 for the first
	StartedAt time.Time     // UTC, to the millisecond
	Duration  time.Duration // to the microsecond
	Status    int           // status code of the response; 0 if there was no response
	Class     ErrorClass    // kind of failure; empty for success
	Error     string        // short reason for the failure, without secrets; empty for success

	// Response is the beginning of the response's body: at most 1 KiB, converted to valid UTF-8
	// without NUL. It is untrusted text from the receiver.
	Response string
}

// ExpiredAttempt returns the attempt to log for a delivery that ends because its event is older
// than webhooks.Retention.Payloads.
func ExpiredAttempt(number int, at time.Time) Attempt {
	return Attempt{
		Number: number, StartedAt: at.UTC().Truncate(time.Millisecond), Class: ClassExpired,
		Error: "no attempt was made before the event's retention ended",
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
	ClassConnect    ErrorClass = "connect"    // no server answers at the address
	ClassTLS        ErrorClass = "tls"        // no trusted connection
	ClassConnection ErrorClass = "connection" // the connection broke before the response
	ClassProtocol   ErrorClass = "protocol"   // the response is not HTTP
	ClassInternal   ErrorClass = "internal"   // failure on this side: unreadable record, panic
	ClassExpired    ErrorClass = "expired"    // no attempt: older than webhooks.Retention.Payloads
	ClassResource   ErrorClass = "resource"   // no attempt: the webhook is now limited to other resources
)

// Ours reports whether the failure is on this side and therefore says nothing about the receiver.
func (c ErrorClass) Ours() bool { return c == ClassInternal || c == ClassExpired || c == ClassResource }

// FailsReceiver reports whether an attempt that failed did so because of its receiver. A 413 is about
// the size of one event, so it says nothing about the receiver either.
func (a *Attempt) FailsReceiver() bool {
	return !a.Class.Ours() && a.Status != http.StatusRequestEntityTooLarge
}

// A Recovery is a job that makes deliveries of one webhook pending again, oldest first. It survives
// a restart.
type Recovery struct {
	ID        string // "rec_" and a ULID
	Account   string
	WebhookID string

	// States are the states of the deliveries to recover: one or more of Dead, Skipped, Delivered
	// and Pending.
	States []DeliveryState

	From time.Time // published at this time or later
	To   time.Time // published before this time; if zero, CreateRecovery sets it to just after the last event

	CreatedAt time.Time // UTC, to the millisecond
	Recovered int       // deliveries made pending so far
	Done      bool      // all deliveries are recovered
}
