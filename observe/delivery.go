package observe

import "time"

// A Publication is a store call that stores events with their deliveries.
type Publication struct {
	Account    string           // not for labels
	Events     []PublishedEvent // at least one; do not modify
	Deliveries int              // of all events; 0 if Err is not nil
	Duration   time.Duration    // of the call to the store

	// Err is the store's error. The events may have been stored nevertheless. It is not for labels.
	Err error
}

// A PublishedEvent is an event of a [Publication].
type PublishedEvent struct {
	ID    string // not for labels
	Type  string // a declared event type
	Bytes int    // of the body
}

// A Claim is a store call that claims due deliveries.
type Claim struct {
	Limit    int           // maximum number of deliveries
	Claimed  int           // deliveries claimed; 0 if Err is not nil
	Duration time.Duration // of the call to the store
	Err      error         // the store's error; not for labels
}

// An Attempt is an attempt to deliver an event to a webhook, with the result for the delivery.
type Attempt struct {
	Account   string // not for labels
	WebhookID string // not for labels
	EventID   string // not for labels
	Receiver  string // the scheme, host and port of the URL, such as "https://example.com"; not for labels
	EventType string // a declared event type

	Number    int           // 1 for the first
	StartedAt time.Time     // UTC, to the millisecond, by Config.Now
	Duration  time.Duration // from looking up the name to the response, to the microsecond
	Status    int           // of the response, 100 to 999; 0 if there was none
	Class     string        // the webhooks.ErrorClass of a failure, one of twelve; empty for success
	Error     string        // reason of the failure, short and without secrets; not for labels
	Result    Result        // one of [Results]

	// EventTimestamp is the event's timestamp: when the reported fact happened.
	EventTimestamp time.Time

	// TraceContext is the result of webhooks.Config.TraceContext when the event was published,
	// possibly long ago and by another process. So link the span of an attempt to it, rather than
	// make it a child. TraceContext may be empty. It is not for labels.
	TraceContext string
}

// A Result is the state of a delivery after an attempt.
type Result string

// The results.
const (
	Delivered Result = "delivered" // the receiver responded with 2xx
	Retry     Result = "retry"     // the attempt failed, and another one follows
	Dead      Result = "dead"      // the attempt failed, and no other follows
)

// Results returns all results, in the order of their declaration.
func Results() []Result { return []Result{Delivered, Retry, Dead} }

// A Settlement is a store call that records results of attempts.
type Settlement struct {
	Size     int           // results
	Stale    int           // results dropped because another worker has the delivery
	Duration time.Duration // of the call to the store
	Err      error         // the store's error, after which the call is repeated; not for labels
}

// A Commit is a commit to a file of store/bolt.
type Commit struct {
	Steps    int           // calls to the store that share the commit
	Duration time.Duration // of writing and syncing
	Err      error         // reason of the failure; not for labels
}
