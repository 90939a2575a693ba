package observe

import "time"

// A Publication is a call of the store that stored events with their deliveries, or failed to.
type Publication struct {
	Account    string           // not for labels
	Events     []PublishedEvent // one or more, to be left as they are
	Deliveries int              // of all of the events; 0 if Err is not nil
	Duration   time.Duration    // of the call of the store

	// Err is why the store failed; the events may be stored nevertheless. It is not for labels.
	Err error
}

// A PublishedEvent is an event of a [Publication].
type PublishedEvent struct {
	ID    string // not for labels
	Type  string // one of those that are declared
	Bytes int    // of the body
}

// A Claim is a call of the store that claims deliveries that are due.
type Claim struct {
	Limit    int           // deliveries that were asked for at most
	Claimed  int           // deliveries that it got; 0 if Err is not nil
	Duration time.Duration // of the call of the store
	Err      error         // why the store failed; not for labels
}

// An Attempt is one try to deliver an event to a webhook, and what became of its delivery.
type Attempt struct {
	Account   string // not for labels
	WebhookID string // not for labels
	EventID   string // not for labels
	Receiver  string // the scheme, host and port of the URL, such as "https://example.com"; not for labels
	EventType string // one of those that are declared

	Number    int           // 1 for the first
	StartedAt time.Time     // UTC, to the millisecond, by Config.Now
	Duration  time.Duration // to the microsecond: looking up the name, connecting, sending, and the response
	Status    int           // of the response, 100 to 999; 0 if there was none
	Class     string        // the webhooks.ErrorClass of a failure, one of eleven; empty for success
	Error     string        // why it failed, in a few words without secrets; not for labels
	Result    Result        // one of [Results]

	// EventTimestamp is the event's: when what it tells happened.
	EventTimestamp time.Time

	// TraceContext is what webhooks.Config.TraceContext returned when the event was published,
	// by whichever process and however long ago: the span of an attempt is linked to it, and is
	// not its child. Empty: none. Not for labels.
	TraceContext string
}

// A Result is what became of a delivery by an attempt.
type Result string

// The results.
const (
	Delivered Result = "delivered" // the receiver answered 2xx
	Retry     Result = "retry"     // it failed, and another attempt follows
	Dead      Result = "dead"      // it failed, and no attempt follows
)

// Results returns all results, in the order of their declaration.
func Results() []Result { return []Result{Delivered, Retry, Dead} }

// A Settlement is a call of the store that records results of attempts.
type Settlement struct {
	Size     int           // results
	Stale    int           // of them, those that were dropped: another worker has the delivery
	Duration time.Duration // of the call of the store
	Err      error         // why the store failed, which is asked again; not for labels
}

// A Commit is one of a file of store/bolt.
type Commit struct {
	Steps    int           // calls of the store that share it
	Duration time.Duration // of writing and syncing
	Err      error         // why it failed; not for labels
}
