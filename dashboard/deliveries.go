package dashboard

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// A deliveryView is the view of a delivery.
type deliveryView struct {
	EventID, WebhookID string
	To                 string // URL of the webhook; empty: not shown
	Gone               bool   // the webhook was deleted
	Event              eventView
	State, Mark        string
	Published          *when
	Next               *when // time of the next attempt, unless it is due
	Attempts           []attemptView
	Last               *attemptView
}

// An attemptView is the view of an attempt.
type attemptView struct {
	Number   int
	Started  *when
	Duration string
	Mark     string
	Outcome  string // "200 OK", or the reason for the lack of a response
	Error    string
	Response string // beginning of the response body, from the receiver
	Header   []headerView
	Made     bool   // a request was sent
	Signed   string // the part of the signed content before the body
}

// A headerView is a header of a request.
type headerView struct{ Name, Value string }

// deliveryStates are the states with their texts and their marks in style.css.
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
		EventID: d.EventID, WebhookID: d.WebhookID, Event: p.viewEvent(d.Type),
		State: string(d.State), Published: p.when(d.PublishedAt),
	}
	for _, s := range deliveryStates {
		if s.State == d.State {
			view.State, view.Mark = s.Text, s.Mark
		}
	}
	if d.State == webhooks.Pending && d.NextAttemptAt.After(p.now()) { // otherwise it is due
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

// A deliveryListView is the view of the list of deliveries.
type deliveryListView struct {
	Webhook    webhookView
	Form       form // the filters
	Types      []eventView
	States     []stateView
	Failed     bool
	Filtered   bool
	Deliveries []deliveryView
	Query      template.URL // the filters, encoded, for links
	After      bool
	Next       string
	Problem    string
	Resent     int             // number of deliveries queued, if others failed
	Failures   []resendFailure // deliveries that could not be queued
}

// A resendFailure is a delivery that could not be resent.
type resendFailure struct{ EventID, Reason string }

// A stateView is a state to filter by.
type stateView struct {
	Value, Text string
	On          bool
}

func (p *pages) listDeliveries(c *call) (answer, error) {
	return p.deliveriesPage(c, deliveryListView{})
}

// deliveriesPage returns the list that the URL selects. The given view has the result of a form.
func (p *pages) deliveriesPage(c *call, view deliveryListView) (answer, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	f := newForm(c.URL.Query())
	query := webhooks.DeliveryQuery{Failed: f.Has("failed", "true"), After: c.after(), Limit: pageSize}
	query.From, query.To = f.period()
	view.Webhook, view.Form, view.Failed, view.After = p.viewWebhook(&webhook), f, query.Failed, query.After != ""
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
	view.Query, view.Filtered = template.URL(filters.Encode()), len(filters) > 0
	a := answer{page: "deliveries", title: "Deliveries to " + webhook.URL, tab: "webhooks"}
	if len(f.Errors) > 0 {
		a.status, a.data = http.StatusUnprocessableEntity, view
		return a, nil
	}
	page, err := p.webhooks.ListDeliveries(c.Context(), c.account, webhook.ID, query)
	if err != nil {
		return answer{}, err
	}
	view.Deliveries, view.Next = p.viewDeliveries(page.Deliveries), page.Next
	a.data = view
	return a, nil
}

// resendDeliveries resends the selected deliveries of a page of the list, and shows that page again.
func (p *pages) resendDeliveries(c *call) (answer, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
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
			return answer{}, err
		default: // others may have been queued
			p.log.ErrorContext(c.Context(), "dashboard: resending an event failed", "webhook", webhook.ID, "event", event, "error", err)
			view.Failures = append(view.Failures, resendFailure{event, "there was a problem on our side; try again"})
		}
	}
	if len(view.Failures) > 0 {
		a, err := p.deliveriesPage(c, view)
		a.status, a.replace = http.StatusConflict, list+filters.Encode()
		return a, err
	}
	filters.Set("done", resent(&webhook))
	return goTo(list+filters.Encode(), ""), nil
}

// resent returns the name of the notice about deliveries that were resent to a webhook.
func resent(webhook *webhooks.Webhook) string {
	switch {
	case webhook.Held:
		return "held"
	case !webhook.Active:
		return "waits"
	}
	return "redelivered"
}

// A deliveryPageView is the view of the page of a delivery.
type deliveryPageView struct {
	Webhook  webhookView
	Delivery deliveryView
	Event    *eventBodyView // nil if the user may not read events
	Problem  string
}

func (p *pages) showDelivery(c *call) (answer, error) { return p.deliveryPage(c, "") }

func (p *pages) deliveryPage(c *call, problem string) (answer, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	delivery, err := p.webhooks.Delivery(c.Context(), c.account, webhook.ID, c.PathValue("event"))
	if err != nil {
		return answer{}, err
	}
	shown, _, err := p.viewCurrent(c, &webhook)
	if err != nil {
		return answer{}, err
	}
	event, err := p.viewEventBody(c, delivery.EventID, delivery.PublishedAt)
	if err != nil {
		return answer{}, err
	}
	due := delivery.State == webhooks.Pending && webhook.Claimable() && delivery.NextAttemptAt.Sub(p.now()) < time.Minute
	return answer{page: "delivery", title: "Delivery of " + delivery.EventID, tab: "webhooks", refresh: due,
		data: deliveryPageView{shown, p.viewDelivery(&delivery), event, problem}}, nil
}

func (p *pages) redeliver(c *call) (answer, error) {
	id, event := c.PathValue("id"), c.PathValue("event")
	err := p.webhooks.Redeliver(c.Context(), c.account, id, event)
	if errors.Is(err, apierr.ErrNotFound) { // maybe only the event's body is missing
		a, err := p.deliveryPage(c, "This event is no longer stored and cannot be resent.")
		a.status = http.StatusConflict
		return a, err
	}
	if err != nil {
		return answer{}, err
	}
	webhook, err := p.webhooks.Get(c.Context(), c.account, id)
	if err != nil {
		return answer{}, err
	}
	return goTo("webhooks/"+id+"/deliveries/"+event, resent(&webhook)), nil
}
