package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// eventPageSize is the number of events on a page. It is small because the page reads the
// deliveries of each event.
const eventPageSize = 20

// An eventListView is the template data for the list of the account's events.
type eventListView struct {
	Form         form // the filters
	Types        []eventView
	Filtered     bool
	Quiet        bool // nothing was published in the last 24 hours
	Unsubscribed bool // no webhook is subscribed to the event type selected by the filter
	Events       []listedEvent
	pager
}

type listedEvent struct {
	ID           string
	Event        eventView
	Resource     string
	Published    *when
	Webhooks     int // number of webhooks that have a delivery of the event
	States       []stateCount
	Unsubscribed bool // no webhook is subscribed to the type
}

// A stateCount shows how many deliveries of an event are in one state.
type stateCount struct{ Text, Mark string }

func (p *pages) listEvents(c *call) (response, error) {
	f := newForm(c.URL.Query())
	query := webhooks.EventQuery{After: c.after(), Limit: eventPageSize}
	query.From, query.To = f.period()
	view := eventListView{Form: f}
	query.Types, view.Types = p.typeFilter(f, p.eventChoices(nil))
	filters := f.filled("type", "from", "to")
	view.Filtered = len(filters) > 0
	a := response{page: "events", title: "Events", tab: "events"}
	if len(f.Errors) > 0 {
		a.status, a.data = http.StatusUnprocessableEntity, view
		return a, nil
	}
	page, err := p.webhooks.ListEvents(c.Context(), c.account, query)
	if err != nil {
		return response{}, err
	}
	unsubscribed, _, err := p.unsubscribed(c)
	if err != nil {
		return response{}, err
	}
	for _, event := range page.Events {
		deliveries, err := p.webhooks.EventDeliveries(c.Context(), c.account, event.ID)
		if err != nil && !errors.Is(err, apierr.ErrNotFound) { // ErrNotFound: purged meanwhile
			return response{}, err
		}
		view.Events = append(view.Events, listedEvent{
			ID: event.ID, Event: p.viewEvent(event.Type), Resource: event.Resource, Published: p.when(event.PublishedAt),
			Webhooks: len(deliveries), States: countStates(deliveries), Unsubscribed: unsubscribed(event.Type),
		})
	}
	view.pager = c.pager("events", filters.Encode(), len(page.Events), page.Next, later(0, page.Next), "event")
	if !view.Filtered && !view.After {
		view.Quiet = page.Next == "" // corrected below if the page shows an event
		if len(page.Events) > 0 {
			view.Quiet = p.now().Sub(page.Events[0].PublishedAt) > hours*time.Hour
		}
	}
	view.Unsubscribed = len(query.Types) > 0 && unsubscribed(query.Types[0])
	a.data = view
	return a, nil
}

// countStates counts the deliveries in each state. It omits states without deliveries.
func countStates(deliveries []webhooks.Delivery) (counts []stateCount) {
	for _, s := range deliveryStates {
		n := 0
		for i := range deliveries {
			if deliveries[i].State == s.State {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, stateCount{fmt.Sprintf("%d %s", n, strings.ToLower(s.Text)), s.Mark})
		}
	}
	return counts
}

// unsubscribed returns a function that reports whether no webhook of the account is subscribed to a
// type. If the account has more webhooks than were read, the function returns false. unsubscribed
// also returns the webhooks that it has read: the newest ones.
func (p *pages) unsubscribed(c *call) (func(webhooks.EventType) bool, []webhooks.Webhook, error) {
	page, err := p.webhooks.List(c.Context(), c.account, webhooks.WebhookQuery{Limit: searchedAtOnce})
	if err != nil {
		return nil, nil, err
	}
	return func(t webhooks.EventType) bool {
		return page.Next == "" && !slices.ContainsFunc(page.Webhooks, func(w webhooks.Webhook) bool { return p.webhooks.Subscribes(&w, t) })
	}, page.Webhooks, nil
}

// typeFilter returns the event type that the filter selects, if any, and the choices of the filter.
// If choices lacks the selected type, typeFilter adds it.
func (p *pages) typeFilter(f form, choices []eventView) ([]webhooks.EventType, []eventView) {
	selected := f.Values.Get("type")
	if selected == "" || !isID(selected) {
		return nil, choices
	}
	t := webhooks.EventType(selected)
	for _, choice := range choices {
		if choice.Type == selected {
			return []webhooks.EventType{t}, choices
		}
	}
	return []webhooks.EventType{t}, append(choices, p.viewEvent(t))
}

// An eventPageView is the template data for the page of an event.
type eventPageView struct {
	ID           string
	Event        eventView
	Resource     string
	Published    *when
	Unsubscribed bool
	Deliveries   []deliveryView
	Body         *eventBodyView

	Webhooks    []explainedWebhook // for which the user can ask for an explanation
	Explanation string             // for the selected one
}

type explainedWebhook struct {
	ID, URL  string
	Selected bool
}

func (p *pages) showEvent(c *call) (response, error) {
	event, err := p.webhooks.Event(c.Context(), c.account, c.PathValue("event"))
	if err != nil {
		return response{}, err
	}
	deliveries, err := p.webhooks.EventDeliveries(c.Context(), c.account, event.ID)
	if err != nil {
		return response{}, err
	}
	published := event.Timestamp
	if len(deliveries) > 0 {
		published = deliveries[0].PublishedAt
	}
	view := eventPageView{ID: event.ID, Event: p.viewEvent(event.Type), Resource: event.Resource, Published: p.when(published), Deliveries: p.viewDeliveries(deliveries)}
	for i := range view.Deliveries {
		d := &view.Deliveries[i]
		webhook, err := p.webhooks.Get(c.Context(), c.account, d.WebhookID)
		if d.To = webhook.URL; errors.Is(err, apierr.ErrNotFound) {
			d.Gone = true
		} else if err != nil {
			return response{}, err
		}
	}
	if view.Body, err = p.viewEventBody(c, event.ID, published); err != nil {
		return response{}, err
	}
	unsubscribed, hooks, err := p.unsubscribed(c)
	if err != nil {
		return response{}, err
	}
	view.Unsubscribed = unsubscribed(event.Type)
	if p.permit(c.Request, auth.ReadWebhooks) == nil {
		if err := p.explain(c, &view, hooks); err != nil {
			return response{}, err
		}
	}
	return response{page: "event", title: "Event " + event.ID, tab: "events", data: view}, nil
}

// explain adds the explanation for the selected webhook, and the choices.
func (p *pages) explain(c *call, view *eventPageView, hooks []webhooks.Webhook) error {
	selected := c.URL.Query().Get("webhook")
	for i := range hooks {
		view.Webhooks = append(view.Webhooks, explainedWebhook{hooks[i].ID, hooks[i].URL, hooks[i].ID == selected})
	}
	if selected == "" {
		return nil
	}
	x, err := p.webhooks.Explain(c.Context(), c.account, view.ID, selected)
	view.Explanation = x.String()
	return err
}
