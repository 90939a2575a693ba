package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// A deliveryView is the template data for a delivery.
type deliveryView struct {
	EventID, WebhookID string
	To                 string // URL of the webhook; empty means not shown
	Gone               bool   // the webhook was deleted
	Event              eventView
	Resource           string // the event's resource; empty means none
	State, Mark        string
	Published          *when
	Next               *when // time of the next attempt, or nil if it is already due
	Attempts           []attemptView
	Last               *attemptView
}

// An attemptView is the template data for an attempt.
type attemptView struct {
	Number   int
	Started  *when
	Duration string
	Mark     string
	Outcome  string // "200 OK", or why there was no response
	Error    string
	Response string // start of the receiver's response body
	Header   []headerView
	Made     bool   // a request was sent
	Signed   string // the signed content up to the body
}

// A headerView is a header of a sent request.
type headerView struct{ Name, Value string }

// deliveryStates lists the states with their labels and their classes in style.css.
var deliveryStates = []struct {
	State      webhooks.DeliveryState
	Text, Mark string
}{
	{webhooks.Pending, "Pending", "warn"},
	{webhooks.Delivered, "Delivered", "good"},
	{webhooks.Dead, "Failed", "bad"},
	{webhooks.Skipped, "Skipped", "quiet"},
}

func (p *pages) viewDelivery(d *webhooks.Delivery) deliveryView {
	view := deliveryView{
		EventID: d.EventID, WebhookID: d.WebhookID, Event: p.viewEvent(d.Type), Resource: d.Resource,
		State: string(d.State), Published: p.when(d.PublishedAt),
	}
	for _, s := range deliveryStates {
		if s.State == d.State {
			view.State, view.Mark = s.Text, s.Mark
		}
	}
	if d.State == webhooks.Pending && d.NextAttemptAt.After(p.now()) { // otherwise the delivery is already due
		view.Next = p.when(d.NextAttemptAt)
	}
	for _, attempt := range slices.Backward(d.Attempts) {
		view.Attempts = append(view.Attempts, p.viewAttempt(d.EventID, attempt))
	}
	if len(view.Attempts) > 0 {
		view.Last = &view.Attempts[0]
	}
	return view
}

func (p *pages) viewDeliveries(list []webhooks.Delivery) (views []deliveryView) {
	for i := range list {
		views = append(views, p.viewDelivery(&list[i]))
	}
	return views
}

func (p *pages) viewAttempt(eventID string, attempt webhooks.Attempt) attemptView {
	view := attemptView{
		Number: attempt.Number, Started: p.when(attempt.StartedAt), Duration: took(attempt.Duration),
		Mark: "good", Outcome: attempt.Error, Response: attempt.Response,
	}
	if attempt.Class != "" {
		view.Mark = "bad"
	}
	if attempt.Status != 0 {
		view.Outcome = fmt.Sprintf("%d %s", attempt.Status, http.StatusText(attempt.Status))
		if attempt.Class == webhooks.ClassRedirect {
			view.Error = "Redirects are not followed. Change the endpoint URL to the one it redirects to."
		}
	}
	header := p.webhooks.RequestHeader(eventID, attempt)
	for name, values := range header {
		view.Header = append(view.Header, headerView{name, values[0]})
	}
	slices.SortFunc(view.Header, func(a, b headerView) int { return strings.Compare(a.Name, b.Name) })
	if view.Made = len(header) > 0; view.Made {
		view.Signed = eventID + "." + strconv.FormatInt(attempt.StartedAt.Unix(), 10) + "."
	}
	return view
}

// A deliveryListView is the template data for a list of deliveries.
type deliveryListView struct {
	Webhook    webhookView
	Form       form // the filters
	Types      []eventView
	States     []stateView
	Failed     bool
	Filtered   bool
	Deliveries []deliveryView
	pager
	Problem  string
	Resent   int             // number of deliveries queued, if queuing others failed
	Failures []resendFailure // deliveries that could not be queued
}

// A resendFailure is a delivery that could not be resent.
type resendFailure struct{ EventID, Reason string }

// A stateView is a delivery state that the user can select as a filter.
type stateView struct {
	Value, Text string
	On          bool
}

func (p *pages) listDeliveries(c *call) (response, error) {
	return p.deliveriesPage(c, deliveryListView{})
}

// deliveriesPage returns the list that the URL selects. view already holds the result of a form, if
// there was one.
func (p *pages) deliveriesPage(c *call, view deliveryListView) (response, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return response{}, err
	}
	f := newForm(c.URL.Query())
	query := webhooks.DeliveryQuery{Failed: f.Has("failed", "true"), After: c.after(), Limit: pageSize}
	query.From, query.To = f.period()
	view.Webhook, view.Form, view.Failed = p.viewWebhook(&webhook), f, query.Failed
	query.Types, view.Types = p.typeFilter(f, p.eventChoices(&view.Webhook))
	filters := f.filled("type", "from", "to")
	if query.Failed {
		filters.Set("failed", "true")
	}
	for _, s := range deliveryStates {
		on := f.Has("state", string(s.State))
		if on {
			query.States = append(query.States, s.State)
			filters.Add("state", string(s.State))
		}
		view.States = append(view.States, stateView{string(s.State), s.Text, on})
	}
	view.Filtered = len(filters) > 0
	a := response{page: "deliveries", title: "Deliveries to " + webhook.URL, tab: "webhooks"}
	if len(f.Errors) > 0 {
		a.status, a.data = http.StatusUnprocessableEntity, view
		return a, nil
	}
	page, err := p.webhooks.ListDeliveries(c.Context(), c.account, webhook.ID, query)
	if err != nil {
		return response{}, err
	}
	view.Deliveries = p.viewDeliveries(page.Deliveries)
	view.pager = c.pager("webhooks/"+webhook.ID+"/deliveries", filters.Encode(), len(page.Deliveries), page.Next, later(0, page.Next), "event")
	a.data = view
	return a, nil
}

// resendDeliveries resends the deliveries that the user selected on a page of the list, and shows
// that page again.
func (p *pages) resendDeliveries(c *call, webhook *webhooks.Webhook) (response, error) {
	events, list, filters := c.PostForm["event"], "webhooks/"+webhook.ID+"/deliveries?", c.URL.Query()
	if len(events) == 0 || len(events) > pageSize {
		a, err := p.deliveriesPage(c, deliveryListView{Problem: fmt.Sprintf("Nothing was resent. Select 1 to %d deliveries.", pageSize)})
		a.status, a.replace = http.StatusUnprocessableEntity, list+filters.Encode()
		return a, err
	}
	var view deliveryListView
	for _, event := range events {
		switch err := p.webhooks.Redeliver(c.Context(), c.account, webhook.ID, event); {
		case err == nil:
			view.Resent++
		case errors.Is(err, apierr.ErrNotFound):
			view.Failures = append(view.Failures, resendFailure{event, "the event is no longer stored"})
		case c.Context().Err() != nil:
			return response{}, err
		default: // other deliveries may have been queued
			p.log.ErrorContext(c.Context(), "dashboard: resending an event failed", "webhook", webhook.ID, "event", event, "error", err)
			view.Failures = append(view.Failures, resendFailure{event, "there was a problem on our side; try again"})
		}
	}
	if len(view.Failures) > 0 {
		a, err := p.deliveriesPage(c, view)
		a.status, a.replace = http.StatusConflict, list+filters.Encode()
		return a, err
	}
	filters.Set("done", resent(webhook))
	return goTo(list+filters.Encode(), ""), nil
}

// resent returns the name of the notice to show after deliveries to a webhook were resent.
func resent(webhook *webhooks.Webhook) string {
	switch {
	case webhook.Held:
		return "held"
	case !webhook.Active:
		return "waits"
	case !webhook.PausedUntil.IsZero():
		return "pause"
	}
	return "redelivered"
}

// A deliveryPageView is the template data for the page of a delivery.
type deliveryPageView struct {
	Webhook  webhookView
	Delivery deliveryView
	Event    *eventBodyView // nil if the user may not read events
	Problem  string

	Explanation string
}

func (p *pages) showDelivery(c *call) (response, error) { return p.deliveryPage(c, "") }

func (p *pages) deliveryPage(c *call, problem string) (response, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return response{}, err
	}
	delivery, err := p.webhooks.Delivery(c.Context(), c.account, webhook.ID, c.PathValue("event"))
	if err != nil {
		return response{}, err
	}
	x, err := p.webhooks.Explain(c.Context(), c.account, delivery.EventID, webhook.ID)
	if err != nil {
		return response{}, err
	}
	event, err := p.viewEventBody(c, delivery.EventID, delivery.PublishedAt)
	if err != nil {
		return response{}, err
	}
	due := delivery.State == webhooks.Pending && sends(&webhook) && delivery.NextAttemptAt.Sub(p.now()) < time.Minute
	shown, view := p.viewWebhook(&webhook), p.viewDelivery(&delivery)
	p.hideUnsent(view.Attempts, &shown)
	return response{page: "delivery", title: "Delivery of " + delivery.EventID, tab: "webhooks", refresh: due,
		data: deliveryPageView{shown, view, event, problem, x.String()}}, nil
}

func (p *pages) redeliver(c *call) (response, error) {
	id, event := c.PathValue("id"), c.PathValue("event")
	err := p.webhooks.Redeliver(c.Context(), c.account, id, event)
	if errors.Is(err, apierr.ErrNotFound) { // perhaps only the event's body is missing
		a, err := p.deliveryPage(c, "This event is no longer stored and cannot be resent.")
		a.status = http.StatusConflict
		return a, err
	}
	if err != nil {
		return response{}, err
	}
	webhook, err := p.webhooks.Get(c.Context(), c.account, id)
	if err != nil {
		return response{}, err
	}
	return goTo("webhooks/"+id+"/deliveries/"+event, resent(&webhook)), nil
}
