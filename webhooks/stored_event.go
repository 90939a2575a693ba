package webhooks

import (
	"slices"
	"time"
)

// A StoredEvent is an event as it is listed, without its body.
type StoredEvent struct {
	ID          string
	Type        EventType
	Timestamp   time.Time // what the body says; UTC, to the millisecond
	PublishedAt time.Time // when the store took the event in

	// HasBody tells that its body is still there.
	HasBody bool
}

// An EventQuery asks for events of an account.
type EventQuery struct {
	Types       []EventType // empty: all
	From        time.Time   // published then or later; zero: since ever
	To          time.Time   // published before; zero: until now
	OldestFirst bool        // or else the newest is
	After       string      // the [EventPage.Next] or Resume of the page before; empty: the first page
	Limit       int         // how many at most; at least 1
}

// Matches reports whether the event is among those asked for, wherever the page begins.
func (q *EventQuery) Matches(e *StoredEvent) bool {
	return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) &&
		!e.PublishedAt.Before(q.From) && (q.To.IsZero() || e.PublishedAt.Before(q.To))
}

// An EventPage is a part of a list of events.
type EventPage struct {
	Events []StoredEvent

	// Next asks for the page that follows; empty if there is none. A page may hold fewer
	// events than were asked for, even none, and have a Next nevertheless. It may be shown
	// to clients: it says nothing of other accounts.
	Next string

	// Resume is, of a query with OldestFirst, the [EventQuery.After] with which a later query
	// goes on: Next if there is one, or else it asks for what is published after this page was
	// made. It is never empty then. Queries that go on by it, with what they ask for else
	// unchanged, list each event once, and none is left out, however many publish meanwhile,
	// on however many nodes.
	Resume string
}
