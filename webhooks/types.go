package webhooks

import "github.com/storageapi/storageapi/store/driver"

// The records that a store keeps and a host sees are defined in package driver, which documents
// their fields.
type (
	// A Webhook is an endpoint that receives an account's events. It holds the URL, the subscribed
	// event types, the signing secrets and the health: whether the webhook is active, when an attempt
	// first succeeded, and since when all attempts have failed.
	Webhook = driver.Webhook

	// A Header is a header field that all requests to a webhook carry.
	Header = driver.Header

	// An OffReason is the reason why a webhook was disabled.
	OffReason = driver.OffReason

	// An EventType names a kind of event that a webhook can subscribe to, such as "balance.low".
	EventType = driver.EventType

	// An EncodedEvent is an event as it is stored, signed and sent: its ID, type, timestamp and
	// exact JSON body.
	EncodedEvent = driver.EncodedEvent

	// A StoredEvent is an event in a list, without its body.
	StoredEvent = driver.StoredEvent

	// An EventQuery selects a page of an account's events, by webhook, type and time of publication.
	EventQuery = driver.EventQuery

	// An EventPage is one page of a list of events.
	EventPage = driver.EventPage

	// A Delivery is the delivery of one event to one webhook, with its state and attempts.
	Delivery = driver.Delivery

	// A DeliveryState is the state of a delivery. Redelivering or recovering a settled delivery
	// makes it pending again.
	DeliveryState = driver.DeliveryState

	// A DeliveryQuery selects a page of a webhook's deliveries, by state, type and time of
	// publication.
	DeliveryQuery = driver.DeliveryQuery

	// A DeliveryPage is one page of a list of deliveries, newest first.
	DeliveryPage = driver.DeliveryPage

	// An Attempt is one try to deliver an event to a webhook. It records when the try began, how long
	// it took, and the response or the kind of failure.
	Attempt = driver.Attempt

	// An ErrorClass is a kind of failure.
	ErrorClass = driver.ErrorClass

	// A Recovery is a job that makes deliveries of one webhook pending again, oldest first. It
	// survives a restart.
	Recovery = driver.Recovery
)

// The reasons why a webhook is disabled.
const (
	OffGone    = driver.OffGone    // the receiver answered 410 Gone
	OffFailing = driver.OffFailing // all attempts, for 2 or more events, failed for [RetryPolicy.DisableAfter]
)

// AllEvents, as the only element of [Webhook.Events], subscribes to all declared types, and to types
// that are declared later. A later type is sent only if its scope was required when Events was last
// set to AllEvents, see [Webhook.EventScopes]. To get types with other scopes, set Events to AllEvents
// again.
const AllEvents = driver.AllEvents

// NoEnd is the [Webhook.PausedUntil] of a pause without an end.
var NoEnd = driver.NoEnd

// The states of a delivery.
const (
	Pending   = driver.Pending   // an attempt will be made, or is in flight
	Delivered = driver.Delivered // the receiver answered 2xx
	Dead      = driver.Dead      // given up: out of retries, 410 Gone, or the event expired
	Skipped   = driver.Skipped   // the webhook was off when the event was published
)

// The classes of failed attempts.
const (
	ClassStatus     = driver.ClassStatus     // a response other than 2xx and 3xx
	ClassRedirect   = driver.ClassRedirect   // 3xx: redirects are not followed
	ClassTimeout    = driver.ClassTimeout    // no response in time
	ClassDNS        = driver.ClassDNS        // the host name has no public address, or could not be looked up
	ClassBlocked    = driver.ClassBlocked    // the URL's address is in a private or reserved network
	ClassConnect    = driver.ClassConnect    // no server answers at the address
	ClassTLS        = driver.ClassTLS        // no trusted TLS connection
	ClassConnection = driver.ClassConnection // the connection broke before the response
	ClassProtocol   = driver.ClassProtocol   // the response is not HTTP
	ClassInternal   = driver.ClassInternal   // this side failed: unreadable record or panic
	ClassExpired    = driver.ClassExpired    // no attempt: the event is older than [Retention.Payloads]
	ClassResource   = driver.ClassResource   // no attempt: the webhook is now limited to other resources
)
