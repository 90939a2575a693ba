package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// An Event is an event of the account.
type Event struct {
	ID            string          `json:"id"`
	Type          string          `json:"type"`
	Resource      string          `json:"resource,omitzero"` // empty means none in particular
	Timestamp     time.Time       `json:"timestamp"`
	PublishedAt   time.Time       `json:"publishedAt"`
	HasBody       bool            `json:"hasBody"` // EventBody returns the body
	BodyKeptUntil time.Time       `json:"bodyKeptUntil,omitzero"`
	Body          json.RawMessage `json:"body,omitzero"` // see [EventQuery]; nil in long lists even if HasBody
}

// An EventQuery selects events. The zero value selects all, newest first.
type EventQuery struct {
	Types   []string  `json:"type,omitzero"`
	Webhook string    `json:"webhook,omitzero"` // only events with a delivery to this webhook
	Since   time.Time `json:"since,omitzero"`   // published at this time or later, oldest first; not with From
	From    time.Time `json:"from,omitzero"`    // published at this time or later
	To      time.Time `json:"to,omitzero"`      // published before this time
	Include string    `json:"include,omitzero"` // "body" for events with their bodies

	// WaitSeconds is how long a call waits for an event instead of returning an empty page, at most
	// 30. It requires Since. The page may still be empty; a busy service may return it early.
	WaitSeconds int `json:"wait,omitzero"`

	Cursor string `json:"cursor,omitzero"` // [Page.NextCursor] of an earlier page of the same query
	Limit  int    `json:"limit,omitzero"`  // events per page, at most 100. Default: 100
}

// An AuditEntry describes a change to a key or a webhook.
type AuditEntry struct {
	ID            string       `json:"id"`
	OccurredAt    time.Time    `json:"occurredAt"`
	Action        string       `json:"action"`
	Target        AuditSubject `json:"target"`
	Actor         AuditSubject `json:"actor"`
	ChangedFields []string     `json:"changedFields"`
	Turned        string       `json:"turned,omitzero"` // "on" or "off"
	RequestID     string       `json:"requestId,omitzero"`
	ClientAddress string       `json:"clientAddress,omitzero"`
	EventID       string       `json:"eventId,omitzero"`
	RecoveryID    string       `json:"recoveryId,omitzero"`
	Reason        string       `json:"reason,omitzero"`
	Since         time.Time    `json:"since,omitzero"`
	Until         time.Time    `json:"until,omitzero"`
}

// An AuditSubject is the target or the actor of a change.
type AuditSubject struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitzero"`
	Name string `json:"name,omitzero"`
	Hint string `json:"hint,omitzero"`
}

// An AuditQuery selects entries of the audit log. The zero value selects all.
type AuditQuery struct {
	Target  string    `json:"target,omitzero"` // the ID of a key or webhook
	Actions []string  `json:"action,omitzero"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
}

const eventsPath = "/notifications/events"

// Events returns an iterator over the events. It stops after the first error.
func (c *Client) Events(ctx context.Context, query EventQuery) iter.Seq2[Event, error] {
	return all[Event](ctx, c, eventsPath, query)
}

// ListEvents returns a page of the events. To follow the events, set query.Since and WaitSeconds, keep
// the query, and continue from [Page.NextCursor], which then is never empty: each event is listed
// once. After an empty page, wait until at least a second has passed since the call.
func (c *Client) ListEvents(ctx context.Context, query EventQuery) (Page[Event], error) {
	return list[Event](ctx, c, eventsPath, query)
}

// EventBody returns an event exactly as it is sent to webhooks.
func (c *Client) EventBody(ctx context.Context, id string) ([]byte, error) {
	return c.body(ctx, eventsPath+"/"+url.PathEscape(id)+"/body")
}

// AuditLog returns an iterator over the audit log, newest first. It stops after the first error.
func (c *Client) AuditLog(ctx context.Context, query AuditQuery) iter.Seq2[AuditEntry, error] {
	return all[AuditEntry](ctx, c, "/audit-log", query)
}
