package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhookFormView is the template data for the form that creates or changes a webhook.
type webhookFormView struct {
	Form    form
	Problem string // error that concerns the form as a whole
	Nonce   string // nonce for creating a webhook
	Webhook *webhookView
	Version string // version of the webhook when the form was loaded
	Events  []eventView
}

func (p *pages) newWebhook(c *call) (response, error) {
	return p.webhookForm(webhookFormView{Form: newForm(nil), Nonce: newNonce()}, http.StatusOK), nil
}

func (p *pages) webhookForm(view webhookFormView, status int) response {
	view.Events = append([]eventView{p.viewEvent(webhooks.AllEvents)}, p.eventChoices(view.Webhook)...)
	title := "Create webhook"
	if view.Webhook != nil {
		title = "Edit " + view.Webhook.URL
	}
	return response{status: status, page: "webhook-form", title: title, tab: "webhooks", data: view}
}

// A webhookMadeView is the template data for the page of a webhook that was just created or whose
// secret was just rotated.
type webhookMadeView struct {
	Webhook webhookView
	Secret  string // empty if the same form was sent before
	Rotated bool
	Header  string // name of the header that signs the body
}

func (p *pages) createWebhook(c *call) (response, error) {
	f := newForm(c.PostForm)
	view := webhookFormView{Form: f, Nonce: c.PostForm.Get("nonce")}
	params, err := p.readWebhook(f, nil)
	if err != nil {
		return response{}, err
	}
	if len(f.Errors) > 0 {
		return p.webhookForm(view, http.StatusUnprocessableEntity), nil
	}
	params.IdempotencyKey = view.Nonce
	webhook, err := p.webhooks.Create(c.Context(), c.account, params)
	var rule *apierr.ValidationError
	switch {
	case errors.Is(err, apierr.ErrLimit):
		view.Problem = "This account has reached its limit of webhooks. Delete one you no longer need, then try again."
		return p.webhookForm(view, http.StatusConflict), nil
	case errors.Is(err, apierr.ErrIdempotencyKeys):
		view.Problem = "Too many webhooks were created for this account in the last 24 hours. Try again later."
		return p.webhookForm(view, http.StatusTooManyRequests), nil
	case errors.Is(err, apierr.ErrIdempotencyMismatch), errors.Is(err, apierr.ErrCreatedThenDeleted):
		view.Problem = "This form has already created a webhook. Submit it again to create another one."
		view.Nonce = newNonce()
		return p.webhookForm(view, http.StatusConflict), nil
	case errors.As(err, &rule): // the nonce is invalid
		view.Problem, view.Nonce = "No webhook was created. Submit the form again.", newNonce()
		return p.webhookForm(view, http.StatusUnprocessableEntity), nil
	case err != nil:
		return response{}, err
	}
	return p.webhookMade(&webhook, webhook.Secret.Reveal(), false), nil
}

// webhookMade shows a webhook's new secret. After a reload the browser shows the webhook's page.
func (p *pages) webhookMade(webhook *webhooks.Webhook, secret string, rotated bool) response {
	return response{
		page: "webhook-made", title: webhook.URL, tab: "webhooks", replace: "webhooks/" + webhook.ID,
		data: webhookMadeView{p.viewWebhook(webhook), secret, rotated, p.webhooks.SignatureHeader()},
	}
}

func (p *pages) editWebhook(_ *call, webhook *webhooks.Webhook) (response, error) {
	view := p.viewWebhook(webhook)
	f := newForm(map[string][]string{"url": {webhook.URL}, "threshold": {view.Threshold}, "resources": {webhook.Resources.String()}})
	f.fillHeaders(webhook.Headers)
	f.fillSignatures(webhook.Signatures)
	for _, t := range webhook.Events {
		f.Values.Add("events", string(t))
	}
	return p.webhookForm(webhookFormView{Form: f, Webhook: &view, Version: view.Version}, http.StatusOK), nil
}

func (p *pages) updateWebhook(c *call, webhook *webhooks.Webhook) (response, error) {
	id, f := c.PathValue("id"), newForm(c.PostForm)
	params, err := p.readWebhook(f, webhook.Events)
	if err != nil {
		return response{}, err
	}
	if p.unit == "" { // the form has no threshold field
		params.Threshold = webhook.Threshold
	}
	shown := p.viewWebhook(webhook)
	view := webhookFormView{Form: f, Webhook: &shown, Version: f.Values.Get("version")}
	if len(f.Errors) > 0 {
		return p.webhookForm(view, http.StatusUnprocessableEntity), nil
	}
	_, err = p.webhooks.Update(c.Context(), c.account, id, webhooks.UpdateParams{
		URL: &params.URL, Events: params.Events, Threshold: &params.Threshold, Resources: &params.Resources, If: unchanged(view.Version),
		Headers: f.changes(webhook.Headers, params.Headers), Signatures: params.Signatures,
	})
	if rule, ok := errors.AsType[*apierr.ValidationError](err); ok { // too many headers, counting the webhook's other headers
		f.Errors[rule.Field] = sentence(rule.Reason)
		return p.webhookForm(view, http.StatusUnprocessableEntity), nil
	}
	if errors.Is(err, errChanged) {
		view.Problem = "This webhook was changed since you opened the form. Save again to replace those changes with yours."
		view.Version = shown.Version
		return p.webhookForm(view, http.StatusConflict), nil
	}
	if err != nil {
		return response{}, err
	}
	return goTo("webhooks/"+id, "saved"), nil
}

// readWebhook returns the parameters in the form, and records errors of its fields. It accepts
// event types that are no longer declared if the webhook is already subscribed to them.
func (p *pages) readWebhook(f form, before []webhooks.EventType) (params webhooks.CreateParams, err error) {
	params = webhooks.CreateParams{
		URL: strings.TrimSpace(f.Values.Get("url")), Events: []webhooks.EventType{}, Resources: f.resources(), Headers: f.headers(), Signatures: f.signatures(),
	}
	for _, name := range f.Values["events"] {
		params.Events = append(params.Events, webhooks.EventType(name))
	}
	if slices.Contains(params.Events, webhooks.AllEvents) {
		params.Events = []webhooks.EventType{webhooks.AllEvents}
	}
	for _, wrong := range p.webhooks.Validate(params) {
		f.Errors[wrong.Field] = sentence(wrong.Reason)
	}
	if params.URL == "" {
		f.Errors["url"] = "Enter the URL that receives the events, such as https://example.com/hooks."
	}
	delete(f.Errors, "events")
	known := slices.Concat(p.webhooks.EventTypes(), before, []webhooks.EventType{webhooks.AllEvents})
	if len(params.Events) == 0 || slices.ContainsFunc(params.Events, func(t webhooks.EventType) bool { return !slices.Contains(known, t) }) {
		f.Errors["events"] = "Select at least one event."
	}
	if text := strings.TrimSpace(f.Values.Get("threshold")); text != "" {
		amount, refused := p.alerts.ParseAmount(text)
		if refused == nil && amount == 0 {
			f.Errors["threshold"] = "Must be more than 0. Leave it empty to use the default."
		}
		err = f.refuse("threshold", refused)
		params.Threshold = uint64(amount)
	}
	return params, err
}
