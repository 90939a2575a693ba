package httpapi

import (
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/webhooks"
)

// A deliveryView is a delivery without its attempts.
type deliveryView struct {
	EventID       string                 `json:"eventId"`
	Type          webhooks.EventType     `json:"type"`
	Resource      string                 `json:"resource,omitempty"`
	State         webhooks.DeliveryState `json:"state"`
	PublishedAt   timestamp              `json:"publishedAt"`
	BodyKeptUntil timestamp              `json:"bodyKeptUntil"`
	NextAttemptAt timestamp              `json:"nextAttemptAt"`
}

// A deliveryListView is a delivery in a list.
type deliveryListView struct {
	deliveryView
	AttemptCount int          `json:"attemptCount"`
	LastAttempt  *attemptView `json:"lastAttempt"`
}

// A deliveryReadView is a single delivery with its attempts.
type deliveryReadView struct {
	deliveryView
	Attempts []attemptView `json:"attempts"`
}

type attemptView struct {
	Number     int                  `json:"number"`
	StartedAt  timestamp            `json:"startedAt"`
	DurationMS float64              `json:"durationMs"`
	Status     *int                 `json:"status"`
	ErrorClass *webhooks.ErrorClass `json:"errorClass"`
	Error      *string              `json:"error"`
	Response   *string              `json:"response"`
}

func viewAttempt(attempt webhooks.Attempt) attemptView {
	return attemptView{
		Number:     attempt.Number,
		StartedAt:  timestamp(attempt.StartedAt),
		DurationMS: float64(attempt.Duration.Microseconds()) / 1000,
		Status:     orNull(attempt.Status),
		ErrorClass: orNull(attempt.Class),
		Error:      orNull(attempt.Error),
		Response:   orNull(attempt.Response),
	}
}

func (a *api) viewDelivery(d *webhooks.Delivery) deliveryView {
	return deliveryView{
		EventID:       d.EventID,
		Type:          d.Type,
		Resource:      d.Resource,
		State:         d.State,
		PublishedAt:   timestamp(d.PublishedAt),
		BodyKeptUntil: timestamp(a.webhooks.BodyKeptUntil(d.PublishedAt)),
		NextAttemptAt: timestamp(d.NextAttemptAt),
	}
}

func (a *api) viewDeliveryListed(d webhooks.Delivery) deliveryListView {
	view := deliveryListView{deliveryView: a.viewDelivery(&d)}
	if n := len(d.Attempts); n > 0 {
		last := viewAttempt(d.Attempts[n-1])
		view.AttemptCount, view.LastAttempt = last.Number, &last
	}
	return view
}

func (a *api) viewDeliveryRead(d *webhooks.Delivery) deliveryReadView {
	view := deliveryReadView{a.viewDelivery(d), []attemptView{}}
	for _, attempt := range d.Attempts {
		view.Attempts = append(view.Attempts, viewAttempt(attempt))
	}
	return view
}

func (a *api) listDeliveries(c *call) (response, error) {
	query, err := parseDeliveryQuery(c.query, c.id)
	if err != nil {
		return response{}, err
	}
	if err := a.seesWebhook(c, c.webhookID()); err != nil {
		return response{}, err
	}
	query.Resources = c.caller.LimitedTo
	page, err := a.webhooks.ListDeliveries(c.Context(), c.caller.Account, c.webhookID(), query)
	if err != nil {
		return response{}, err
	}
	next := page.Next
	if next != "" {
		next = c.id + "/" + next // so that the cursor is valid only for this webhook
	}
	return showList(page.Deliveries, next, a.viewDeliveryListed)
}

func (a *api) getDelivery(c *call) (response, error) {
	delivery, err := a.readDelivery(c)
	if err != nil {
		return response{}, err
	}
	return ok(a.viewDeliveryRead(&delivery))
}

func (a *api) redeliver(c *call) (response, error) {
	webhook, err := a.findUsable(c)
	if err != nil {
		return response{}, err
	}
	delivery, err := a.findDelivery(c, webhook.ID)
	if err != nil {
		return response{}, err
	}
	err = a.webhooks.Redeliver(c.Context(), c.caller.Account, webhook.ID, delivery.EventID)
	if errors.Is(err, apierr.ErrNotFound) {
		if _, err := a.findWebhook(c); err != nil {
			return response{}, err
		}
		return response{}, errNoPayload
	}
	if err != nil {
		return response{}, err
	}
	if delivery, err = a.findDelivery(c, webhook.ID); err != nil {
		return response{}, err
	}
	return accepted("", a.viewDeliveryRead(&delivery))
}

// readDelivery returns the delivery named in the path if the caller may read its webhook.
func (a *api) readDelivery(c *call) (webhooks.Delivery, error) {
	webhook, err := a.findWebhook(c)
	if err != nil {
		return webhooks.Delivery{}, err
	}
	return a.findDelivery(c, webhook.ID)
}

// findDelivery returns the webhook's delivery of the event named in the path.
func (a *api) findDelivery(c *call, webhookID string) (webhooks.Delivery, error) {
	delivery, err := a.webhooks.Delivery(c.Context(), c.caller.Account, webhookID, c.subID)
	if errors.Is(err, apierr.ErrNotFound) || err == nil && !c.caller.Allows(delivery.Resource) {
		return webhooks.Delivery{}, errNoDelivery
	}
	return delivery, err
}

var deliveryStates = []webhooks.DeliveryState{webhooks.Pending, webhooks.Delivered, webhooks.Dead, webhooks.Skipped}

// parseDeliveryQuery parses the optional parameters of a webhook's delivery list: state and type
// (both repeatable), failed, from, to, limit and cursor.
func parseDeliveryQuery(values url.Values, webhookID string) (parsed webhooks.DeliveryQuery, err error) {
	if parsed.Limit, err = parseLimit(values); err != nil {
		return parsed, err
	}
	for _, state := range values["state"] {
		if !slices.Contains(deliveryStates, webhooks.DeliveryState(state)) {
			return parsed, invalid("state", "must be pending, delivered, dead or skipped; repeat the parameter for several")
		}
		if !slices.Contains(parsed.States, webhooks.DeliveryState(state)) {
			parsed.States = append(parsed.States, webhooks.DeliveryState(state))
		}
	}
	if parsed.Types, err = parseTypes(values["type"]); err != nil {
		return parsed, err
	}
	if texts, given := values["failed"]; given {
		if len(texts) > 1 || texts[0] != "true" && texts[0] != "false" {
			return parsed, invalid("failed", "must be true or false, and given only once")
		}
		parsed.Failed = texts[0] == "true"
	}
	if parsed.From, err = parseBoundIn(values, "from"); err != nil {
		return parsed, err
	}
	if parsed.To, err = parseBoundIn(values, "to"); err != nil {
		return parsed, err
	}
	if !parsed.From.IsZero() && !parsed.To.IsZero() && !parsed.From.Before(parsed.To) {
		return parsed, invalid("from", "must be before to")
	}
	if texts, given := values["cursor"]; given {
		var valid bool
		if parsed.After, valid = parseListCursor(texts[0], webhookID); !valid || len(texts) > 1 {
			return parsed, errCursor
		}
	}
	return parsed, nil
}

// parseBoundIn parses a bound of a time range. If the parameter is absent, it returns the zero
// time.
func parseBoundIn(values url.Values, name string) (time.Time, error) {
	texts, given := values[name]
	switch {
	case !given:
		return time.Time{}, nil
	case len(texts) > 1:
		return time.Time{}, invalid(name, "must be given only once")
	}
	return parseBound(name)(texts[0])
}

// parseListCursor decodes a cursor, which consists of the name of its list and a position from the
// store. The name of a list of deliveries is the webhook's ID.
func parseListCursor(s, list string) (next string, valid bool) {
	decoded, err := base64.RawURLEncoding.DecodeString(s)
	next, found := strings.CutPrefix(string(decoded), list+"/")
	return next, err == nil && found && next != "" && len(next) <= 128 && input.PlainText(next) && encodeCursor(string(decoded)) == s
}
