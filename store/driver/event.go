package driver

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// An EventType names a kind of event that a webhook can subscribe to.
type EventType string

// AllEvents in [Webhook.Events] stands for all types whose scope is in [Webhook.EventScopes],
// including types that are declared later.
const AllEvents EventType = "*"

// An EncodedEvent is an event in the form in which it is stored, signed and sent.
type EncodedEvent struct {
	ID        string // unique in its account
	Account   string
	Type      EventType
	Timestamp time.Time // UTC, to the millisecond

	// TraceContext links attempts to the trace of the publication. Receivers get it only
	// with webhooks.Outbound.SendTraceparent. Empty means none.
	TraceContext string

	// Resource is the resource that the event is about; empty means none in particular.
	Resource string

	// Scope is the scope that subscribing to Type requires. Publishing matches it with
	// [Webhook.EventScopes]; stores do not keep it.
	Scope scopes.Scope

	// Body is the exact JSON that receivers get: {"id":…,"type":…,"timestamp":…,"data":…}. It must
	// not be changed.
	Body []byte
}

// A StoredEvent is an event in a list, without its body.
type StoredEvent struct {
	ID          string
	Type        EventType
	Resource    string
	Timestamp   time.Time // as in the body; UTC, to the millisecond
	PublishedAt time.Time // when the store accepted the event

	// HasBody reports whether the store still has the body.
	HasBody bool
}

// An EventQuery selects events of an account.
type EventQuery struct {
	Types       []EventType    // empty means all
	Resources   auth.Resources // only events of these resources; zero means all
	WebhookID   string         // only events with a delivery to this webhook; empty means all events
	From        time.Time      // published at this time or later; zero means no limit
	To          time.Time      // published before this time; zero means no limit
	OldestFirst bool           // otherwise newest first
	After       string         // [EventPage.Next] or Resume of the previous page; empty means the first page
	Limit       int            // page size; at least 1
}

// Matches reports whether the query selects the event, regardless of WebhookID and of where the
// page begins.
func (q *EventQuery) Matches(e *StoredEvent) bool {
	return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && q.Resources.Allows(e.Resource) &&
		!e.PublishedAt.Before(q.From) && (q.To.IsZero() || e.PublishedAt.Before(q.To))
}

// An EventPage is one page of a list of events.
type EventPage struct {
	Events []StoredEvent

	// Next is the [EventQuery.After] of the following page; empty if there is none. A page may hold
	// fewer events than Limit, even none, and still have a Next. Next is safe to show to clients,
	// since it reveals nothing about other accounts.
	Next string

	// Resume is the [EventQuery.After] that continues this list later. It is set for every query
	// with OldestFirst, and only for these. It equals Next if Next is not empty; otherwise it
	// continues with events published after this page was made. Queries that continue with Resume,
	// and change no other field, list each event once, without gaps, even while many nodes publish.
	Resume string
}
