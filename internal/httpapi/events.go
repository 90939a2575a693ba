package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// An eventView is an event in a list.
type eventView struct {
	ID            string             `json:"id"`
	Type          webhooks.EventType `json:"type"`
	Resource      string             `json:"resource,omitempty"`
	Timestamp     timestamp          `json:"timestamp"`
	PublishedAt   timestamp          `json:"publishedAt"`
	HasBody       bool               `json:"hasBody"`
	BodyKeptUntil timestamp          `json:"bodyKeptUntil"`
	Body          json.RawMessage    `json:"body,omitempty"` // only if the client asks for it
}

func (a *api) viewEvent(e webhooks.StoredEvent) eventView {
	return eventView{e.ID, e.Type, e.Resource, timestamp(e.Timestamp), timestamp(e.PublishedAt), e.HasBody, timestamp(a.webhooks.BodyKeptUntil(e.PublishedAt)), nil}
}

// maxBodies is the total size in bytes after which a list of events omits further bodies.
const maxBodies = 4 << 20

// listEvents lists the events that the caller may read. With since, every page has a cursor, so
// that the client can continue later with new events. With wait, an empty page is delayed until
// there is an event.
func (a *api) listEvents(c *call) (response, error) {
	query, err := parseEventQuery(c.query)
	if err != nil {
		return response{}, err
	}
	wait, err := parseWait(c.query)
	if err != nil {
		return response{}, err
	}
	include := c.query["include"]
	if len(include) > 1 || len(include) == 1 && include[0] != "body" {
		return response{}, invalid("include", "must be body")
	}
	if query.Types, err = a.readableTypes(c, query.Types); err != nil {
		return response{}, err
	}
	if query.WebhookID != "" {
		if err := a.seesWebhook(c, query.WebhookID); err != nil {
			return response{}, err
		}
	}
	query.Resources = c.caller.LimitedTo
	page, err := a.webhooks.ListEvents(c.Context(), c.caller.Account, query)
	if err == nil && wait > 0 && len(page.Events) == 0 && page.Next == "" {
		query.After = page.Resume
		if page, err = a.waitEvents(c, query, wait); err == nil {
			_, err = a.readableTypes(c, query.Types) // the host's policy may have changed meanwhile
		}
	}
	if err != nil {
		return response{}, err
	}
	part := listView{Data: []any{}, HasMore: page.Next != ""}
	size := 0
	for _, event := range page.Events {
		view := a.viewEvent(event)
		if event.HasBody && len(include) > 0 && size < maxBodies {
			view.Body, err = a.body(c, event.ID)
			if err != nil && !errors.Is(err, apierr.ErrNotFound) && !errors.Is(err, auth.ErrForbidden) { // ErrNotFound: purged meanwhile
				return response{}, err
			}
			size += len(view.Body)
		}
		part.Data = append(part.Data, view)
	}
	next := page.Next
	if query.OldestFirst {
		next = page.Resume
	}
	if next != "" {
		cursor := encodeCursor(eventList(query.OldestFirst) + "/" + next)
		part.NextCursor = &cursor
	}
	return ok(part)
}

func (a *api) getDeliveryBody(c *call) (response, error) {
	delivery, err := a.readDelivery(c)
	if err != nil {
		return response{}, err
	}
	return a.showBody(c, delivery.EventID, errNoDelivery)
}

func (a *api) getEventBody(c *call) (response, error) { return a.showBody(c, c.id, errNoEvent) }

// showBody answers with the unmodified body of an event in the caller's account. If the event does
// not exist, it returns the error missing.
func (a *api) showBody(c *call, eventID string, missing error) (response, error) {
	body, err := a.body(c, eventID)
	switch {
	case errors.Is(err, apierr.ErrNotFound):
		return response{}, missing
	case err != nil:
		return response{}, err
	case body == nil:
		return response{}, webhooks.ErrBodyGone
	}
	return response{status: http.StatusOK, body: body, verbatim: true}, nil
}

// body returns the body of an event if the caller may read it, or nil if the body is not stored.
func (a *api) body(c *call, eventID string) ([]byte, error) {
	event, err := a.webhooks.Event(c.Context(), c.caller.Account, eventID)
	if err != nil {
		return nil, err
	}
	if !c.caller.Allows(event.Resource) {
		return nil, apierr.ErrNotFound
	}
	if err := a.mayReadEvent(c, event.ID, event.Type, event.Resource); err != nil {
		return nil, err
	}
	return event.Body, nil
}

// mayReadEvent checks whether the caller may read the event.
func (a *api) mayReadEvent(c *call, eventID string, eventType webhooks.EventType, resource string) error {
	target := auth.Target{ID: eventID, Scopes: a.webhooks.ReadScopes([]webhooks.EventType{eventType})}
	target.Resources, _ = auth.ParseResources([]string{resource}) // zero if the event has none
	return a.permit(c, &target)
}

// readableTypes returns the event types to list. If asked is not empty, it returns asked, or an
// error unless the caller may read all of these types. Otherwise it returns all types that the
// caller may read. If the caller may read every type, even undeclared ones, it returns nil, which
// means no filter.
func (a *api) readableTypes(c *call, asked []webhooks.EventType) (readable []webhooks.EventType, err error) {
	if len(asked) > 0 {
		return asked, a.permit(c, &auth.Target{Scopes: a.webhooks.ReadScopes(asked), Resources: c.caller.LimitedTo})
	}
	may := make(map[scopes.Set]error) // by read scopes, so that each set is checked once
	for _, t := range append(a.webhooks.EventTypes(), withdrawn) {
		behind := a.webhooks.ReadScopes([]webhooks.EventType{t})
		refused, known := may[behind]
		if !known {
			refused = a.permit(c, &auth.Target{Scopes: behind, Resources: c.caller.LimitedTo})
			may[behind] = refused
		}
		switch {
		case errors.Is(refused, auth.ErrForbidden):
		case refused != nil:
			return nil, refused
		case t == withdrawn && len(readable) == len(a.webhooks.EventTypes()):
			return nil, nil
		case t != withdrawn:
			readable = append(readable, t)
		}
	}
	if len(readable) == 0 {
		return nil, auth.ErrForbidden
	}
	return readable, nil
}

// withdrawn represents all types that are no longer declared.
const withdrawn webhooks.EventType = ""

var errEventCursor = invalid("cursor", `must be one nextCursor of this list, unmodified and sent with the same "since"; omit the cursor to start over`)

// parseEventQuery parses the optional parameters type (repeatable), webhook, from, to, limit and
// cursor. The list is newest first. With since instead of from, it is oldest first.
func parseEventQuery(values url.Values) (parsed webhooks.EventQuery, err error) {
	if parsed.Limit, err = parseLimit(values); err != nil {
		return parsed, err
	}
	if parsed.Types, err = parseTypes(values["type"]); err != nil {
		return parsed, err
	}
	if texts, given := values["webhook"]; given {
		if parsed.WebhookID = wellFormed(id.Webhook, texts[0]); parsed.WebhookID == "" || len(texts) > 1 {
			return parsed, invalid("webhook", "must be one id of a webhook")
		}
	}
	if parsed.From, err = parseBoundIn(values, "from"); err != nil {
		return parsed, err
	}
	since, err := parseBoundIn(values, "since")
	if err != nil {
		return parsed, err
	}
	if parsed.OldestFirst = values.Has("since"); parsed.OldestFirst {
		if values.Has("from") {
			return parsed, invalid("since", `must not be combined with "from"`)
		}
		parsed.From = since
	}
	if parsed.To, err = parseBoundIn(values, "to"); err != nil {
		return parsed, err
	}
	if !parsed.From.IsZero() && !parsed.To.IsZero() && !parsed.From.Before(parsed.To) {
		return parsed, invalid("to", `must be later than "from" or "since"`)
	}
	parsed.After, err = parseEventCursor(values, parsed.OldestFirst)
	return parsed, err
}

// parseTypes parses the names of event types. Undeclared types are allowed.
func parseTypes(names []string) (types []webhooks.EventType, err error) {
	for _, name := range names {
		if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") != "" {
			return nil, invalid("type", "must be an event type, such as balance.low; repeat the parameter for several")
		}
		if t := webhooks.EventType(name); !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	if len(types) > webhooks.MaxEventTypes {
		return nil, invalid("type", "must not be repeated more times than there are event types")
	}
	return types, nil
}

func parseEventCursor(values url.Values, oldestFirst bool) (after string, err error) {
	texts, given := values["cursor"]
	if !given {
		return "", nil
	}
	after, valid := parseListCursor(texts[0], eventList(oldestFirst))
	if !valid || len(texts) > 1 {
		return "", errEventCursor
	}
	return after, nil
}

// eventList returns the list name in the cursors of events.
func eventList(oldestFirst bool) string {
	if oldestFirst {
		return "oldest"
	}
	return "newest"
}
