package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhookView is the template data for a webhook.
type webhookView struct {
	ID, URL   string
	Events    []eventView
	Later     []eventView // types that are sent only after Events is saved again
	Resources []string    // the resources that it is limited to; empty means no limit
	Active    bool
	Held      bool // on hold since a restore
	Paused    bool
	State     string // a class in style.css
	StateText string
	Reason    []sentenceView    // why the webhook is off, or when it will be turned off because attempts fail
	Down      bool              // the receiver is down and gets one attempt at a time
	Threshold string            // in the API's unit of balances; empty means the default threshold
	Headers   []webhooks.Header // templates show no secret values
	Created   *when
	Version   string

	// PreviousUntil is when the previous secret stops signing.
	PreviousUntil *when

	signaturesView
}

// A sentenceView is a sentence that may contain a time, between Before and After.
type sentenceView struct {
	Before string
	At     *when // nil means no time
	After  string
}

func (v *webhookView) because(before string, at *when, after string) {
	v.Reason = append(v.Reason, sentenceView{before, at, after})
}

func (p *pages) viewWebhook(w *webhooks.Webhook) webhookView {
	view := webhookView{
		ID: w.ID, URL: w.URL, Resources: w.Resources.Names(), Active: w.Active, Held: w.Held, Paused: !w.PausedUntil.IsZero(), Headers: w.Headers,
		signaturesView: viewSignatures(w), Created: p.when(w.CreatedAt), PreviousUntil: p.when(w.PreviousSecretExpiresAt), Version: webhookVersion(w),
	}
	for _, t := range w.Events {
		view.Events = append(view.Events, p.viewEvent(t))
	}
	if w.SubscribesAll() {
		for _, t := range p.webhooks.EventTypes() {
			if !p.webhooks.Subscribes(w, t) {
				view.Later = append(view.Later, p.viewEvent(t))
			}
		}
	}
	if w.Threshold > 0 {
		view.Threshold = alerts.Amount(w.Threshold).String()
	}
	failing := p.when(w.FailingSince)
	switch {
	case w.OffReason == webhooks.OffGone:
		view.State, view.StateText = "bad", "Off"
		view.because("Turned off because the endpoint responded 410 Gone.", nil, "")
	case w.OffReason == webhooks.OffFailing && failing != nil:
		view.State, view.StateText = "bad", "Off"
		view.because("Turned off because every attempt had failed since ", failing, ".")
	case w.OffReason != "":
		view.State, view.StateText = "bad", "Off"
		view.because("Turned off because every attempt had failed for days.", nil, "")
	case !w.Active:
		view.State, view.StateText = "quiet", "Off"
	case w.Held:
		view.State, view.StateText = "warn", "On hold"
		view.because("The service was restored from a backup. Pending events may have been sent before. They wait until you release the webhook.", nil, "")
	case view.Paused && w.PausedUntil.Before(webhooks.NoEnd):
		view.State, view.StateText = "quiet", "Paused"
		view.because("Paused until ", p.when(w.PausedUntil), ". Events wait until then.")
	case view.Paused:
		view.State, view.StateText = "quiet", "Paused"
		view.because("Paused. Events wait until you resume the webhook.", nil, "")
	case failing != nil:
		view.State, view.StateText = "warn", "Failing"
		view.because("Every attempt has failed since ", failing, ".")
	default:
		view.State, view.StateText = "good", "On"
	}
	return view
}

// viewCurrent returns the template data for a webhook, and its statistics. Unlike viewWebhook it
// includes the delivery state, for example that the receiver gets one attempt at a time.
func (p *pages) viewCurrent(c *call, w *webhooks.Webhook) (webhookView, webhooks.WebhookStats, error) {
	view := p.viewWebhook(w)
	stats, err := p.webhooks.WebhookStats(c.Context(), c.account, w.ID)
	if err != nil || !sends(w) {
		return view, stats, err
	}
	if view.Down = stats.LimiterState.Open; view.Down {
		view.State, view.StateText = "bad", "Failing"
		view.because("We send one event at a time until one arrives.", nil, "")
	}
	switch off := stats.TurnsOffAt; {
	case off.IsZero():
	case off.After(p.now()):
		view.because("Will be turned off on ", p.when(off), " unless an attempt succeeds.")
	default:
		view.because("Will be turned off shortly unless an attempt succeeds.", nil, "")
	}
	return view, stats, nil
}

// webhookVersion returns a hash of the fields that a webhook's forms can change.
func webhookVersion(w *webhooks.Webhook) string {
	sum := fields.Sum((*listed.Webhook)(w), fields.Created|fields.Tagged)
	return version("webhook", w.ID, string(sum[:]))
}

// An eventView is the template data for an event type.
type eventView struct{ Type, Text string }

func (p *pages) viewEvent(t webhooks.EventType) eventView {
	if d, ok := p.webhooks.DeclaredEvent(t); ok {
		return eventView{string(t), d.Description}
	}
	switch t {
	case webhooks.TypeTest:
		return eventView{string(t), string(t)}
	case webhooks.AllEvents:
		return eventView{string(t), "All events, also ones added later"}
	}
	return eventView{string(t), string(t) + " (no longer sent)"}
}

// eventChoices returns the declared event types. If w is not nil, it adds the undeclared types to
// which the webhook is still subscribed.
func (p *pages) eventChoices(w *webhookView) (list []eventView) {
	for _, t := range p.webhooks.EventTypes() {
		list = append(list, p.viewEvent(t))
	}
	if w != nil {
		for _, e := range w.Events {
			if e.Type != string(webhooks.AllEvents) && !slices.Contains(list, e) {
				list = append(list, e)
			}
		}
	}
	return list
}

// webhookPageSize is the number of webhooks on a page. It is small because the page reads the
// health of each webhook.
const webhookPageSize = 20

// A webhookListView is the template data for the list of webhooks.
type webhookListView struct {
	Webhooks []listedWebhook
	pager
}

type listedWebhook struct {
	webhookView
	Health healthView
}

func (p *pages) listWebhooks(c *call) (response, error) {
	page, err := p.webhooks.List(c.Context(), c.account, webhooks.WebhookQuery{After: c.after(), Limit: webhookPageSize})
	if err != nil {
		return response{}, err
	}
	var rest webhooks.WebhookPage
	if page.Next != "" {
		if rest, err = p.webhooks.List(c.Context(), c.account, webhooks.WebhookQuery{After: page.Next, Limit: countedAtMost}); err != nil {
			return response{}, err
		}
	}
	view := webhookListView{pager: c.pager("webhooks", "", len(page.Webhooks), page.Next, later(len(rest.Webhooks), rest.Next), "webhook")}
	for i := range page.Webhooks {
		webhook, _, err := p.viewCurrent(c, &page.Webhooks[i])
		if err != nil {
			return response{}, err
		}
		health, err := p.health(c, page.Webhooks[i].ID, listSample)
		if err != nil {
			return response{}, err
		}
		view.Webhooks = append(view.Webhooks, listedWebhook{webhook, health})
	}
	return response{page: "webhooks", title: "Webhooks", tab: "webhooks", data: view}, nil
}

// A webhookPageView is the template data for the page of a webhook.
type webhookPageView struct {
	Webhook    webhookView
	Health     healthView
	Pending    int
	OldestDue  string         // how long the oldest due delivery has been waiting
	Failures   []deliveryView // failures of recent days
	Deliveries []deliveryView // deliveries other than Failures
	Quiet      bool           // no event was published for the webhook in the last 24 hours
	Test       *testView
	Examples   []eventView  // types of which a test event can be sent
	Skipped    *skippedView // nil if no skipped events are known
}

// A skippedView is the template data for events that were skipped while the webhook was off.
type skippedView struct {
	Text  string
	Query template.URL // fills in the form that resends the events
}

// skipped returns the template data for events that the webhook has skipped since the given minute,
// or nil if there are none.
func (p *pages) skipped(c *call, webhookID string, since time.Time) (*skippedView, error) {
	page, err := p.webhooks.ListDeliveries(c.Context(), c.account, webhookID, webhooks.DeliveryQuery{
		States: []webhooks.DeliveryState{webhooks.Skipped}, From: since, Limit: pageSize,
	})
	if err != nil {
		return nil, err
	}
	fields := url.Values{"state": {string(webhooks.Skipped)}}
	if !since.IsZero() {
		fields.Set("from", minuteOf(since))
	}
	view := &skippedView{Query: template.URL(fields.Encode())}
	switch n := len(page.Deliveries); {
	case n > 0 && page.Next != "":
		view.Text = fmt.Sprintf("At least %d events were skipped", n)
	case page.Next != "": // List has examined as many deliveries as it may
		view.Text = "Events may have been skipped"
	case n == 1:
		view.Text = "1 event was skipped"
	case n > 0:
		view.Text = fmt.Sprintf("%d events were skipped", n)
	default:
		return nil, nil
	}
	return view, nil
}

// A testView is the template data for the result of a test event.
type testView struct {
	EventID  string
	Event    *eventBodyView
	Attempts []attemptView // one, if it was sent
	Busy     bool          // not sent because another test event is running
	Held     bool          // not sent because the webhook is on hold
}

func (p *pages) showWebhook(c *call) (response, error) { return p.webhookPage(c, nil) }

// Limits of the lists on a webhook's page: first the latest failures of recent days, then the
// latest other deliveries.
const (
	latest = 5
	recent = 7 * 24 * time.Hour
)

func (p *pages) webhookPage(c *call, test *testView) (response, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return response{}, err
	}
	shown, stats, err := p.viewCurrent(c, &webhook)
	if err != nil {
		return response{}, err
	}
	failed, err := p.webhooks.ListDeliveries(c.Context(), c.account, webhook.ID, webhooks.DeliveryQuery{
		Failed: true, States: []webhooks.DeliveryState{webhooks.Dead, webhooks.Pending}, From: p.now().Add(-recent), Limit: latest,
	})
	if err != nil {
		return response{}, err
	}
	page, err := p.webhooks.ListDeliveries(c.Context(), c.account, webhook.ID, webhooks.DeliveryQuery{Limit: len(failed.Deliveries) + latest})
	if err != nil {
		return response{}, err
	}
	others := slices.DeleteFunc(page.Deliveries, func(d webhooks.Delivery) bool {
		return slices.ContainsFunc(failed.Deliveries, func(f webhooks.Delivery) bool { return f.EventID == d.EventID })
	})
	types := webhook.Events
	if webhook.SubscribesAll() {
		types = nil
	}
	events, err := p.webhooks.ListEvents(c.Context(), c.account, webhooks.EventQuery{Types: types, From: p.now().Add(-hours * time.Hour), Limit: 1})
	if err != nil {
		return response{}, err
	}
	health, err := p.health(c, webhook.ID, pageSample)
	if err != nil {
		return response{}, err
	}
	view := webhookPageView{
		Webhook: shown, Health: health, Pending: stats.Pending, Test: test,
		Failures:   p.viewDeliveries(failed.Deliveries),
		Deliveries: p.viewDeliveries(others[:min(latest, len(others))]),
		Quiet:      len(events.Events) == 0 && events.Next == "",
	}
	for _, t := range p.webhooks.ExampleTypes() {
		view.Examples = append(view.Examples, p.viewEvent(t))
	}
	off := webhook.OffAt
	if webhook.Active {
		off = newForm(c.URL.Query()).moment("off") // the visitor has just turned the webhook on
	}
	if !webhook.Active || !off.IsZero() {
		if view.Skipped, err = p.skipped(c, webhook.ID, off.Truncate(time.Minute)); err != nil {
			return response{}, err
		}
	}
	if stats.OldestDue > 0 {
		view.OldestDue = took(stats.OldestDue)
	}
	a := response{page: "webhook", title: webhook.URL, tab: "webhooks", data: view}
	if test != nil {
		p.hideUnsent(test.Attempts, &shown)
		a.replace = "webhooks/" + webhook.ID
	}
	return a, nil
}
