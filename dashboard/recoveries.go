package dashboard

import (
	"errors"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// A recoveryFormView is the template data for the form that starts a recovery.
type recoveryFormView struct {
	Webhook webhookView
	Form    form
	States  []choice
}

// recoverable lists the delivery states that a recovery can select.
var recoverable = []choice{
	{string(webhooks.Dead), "Failed: every attempt failed"},
	{string(webhooks.Skipped), "Skipped: the webhook was off"},
	{string(webhooks.Pending), "Pending: waiting for the next attempt"},
	{string(webhooks.Delivered), "Delivered: your endpoint gets them a second time"},
}

func (p *pages) askRecover(c *call, webhook *webhooks.Webhook) (response, error) {
	f := newForm(c.URL.Query()) // a link may prefill the form
	if !f.Values.Has("state") {
		f.Values["state"] = []string{string(webhooks.Dead), string(webhooks.Skipped), string(webhooks.Pending)}
	}
	return p.recoveryForm(webhook, f, http.StatusOK), nil
}

func (p *pages) recoveryForm(webhook *webhooks.Webhook, f form, status int) response {
	return response{status: status, page: "recover", title: "Resend missed events to " + webhook.URL, tab: "webhooks",
		data: recoveryFormView{p.viewWebhook(webhook), f, recoverable}}
}

func (p *pages) startRecovery(c *call, webhook *webhooks.Webhook) (response, error) {
	f := newForm(c.PostForm)
	var params webhooks.RecoverParams
	params.From, params.To = f.period()
	for _, state := range f.Values["state"] {
		params.States = append(params.States, webhooks.DeliveryState(state))
	}
	if len(params.States) == 0 {
		f.Errors["state"] = "Select at least one."
	}
	if len(f.Errors) > 0 {
		return p.recoveryForm(webhook, f, http.StatusUnprocessableEntity), nil
	}
	recovery, err := p.webhooks.Recover(c.Context(), c.account, webhook.ID, params)
	if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
		f.Errors[strings.TrimSuffix(rule.Field, "s")] = sentence(rule.Reason) // the rule for "states" concerns the form field "state"
		return p.recoveryForm(webhook, f, http.StatusUnprocessableEntity), nil
	}
	if errors.Is(err, webhooks.ErrRecovering) {
		f.Errors["state"] = "Events are already being resent to this webhook. Try again when that is done."
		return p.recoveryForm(webhook, f, http.StatusConflict), nil
	}
	if err != nil {
		return response{}, err
	}
	return goTo("webhooks/"+webhook.ID+"/recoveries/"+recovery.ID, ""), nil
}

// A recoveryPageView is the template data for the page of a recovery.
type recoveryPageView struct {
	Webhook   webhookView
	ID        string
	States    string
	From, To  *when
	Created   *when
	Recovered int
	Done      bool
	Pending   int // all pending deliveries of the webhook
	Live      bool
}

func (p *pages) showRecovery(c *call, webhook *webhooks.Webhook) (response, error) {
	recovery, err := p.webhooks.Recovery(c.Context(), c.account, c.PathValue("recovery"))
	if err == nil && recovery.WebhookID != webhook.ID {
		err = apierr.ErrNotFound
	}
	if err != nil {
		return response{}, err
	}
	stats, err := p.webhooks.WebhookStats(c.Context(), c.account, webhook.ID)
	if err != nil {
		return response{}, err
	}
	var states []string
	for _, s := range deliveryStates {
		for _, state := range recovery.States {
			if state == s.State {
				states = append(states, s.Text)
			}
		}
	}
	view := recoveryPageView{
		Webhook: p.viewWebhook(webhook), ID: recovery.ID, States: strings.Join(states, ", "),
		From: p.when(recovery.From), To: p.when(recovery.To), Created: p.when(recovery.CreatedAt),
		Recovered: recovery.Recovered, Done: recovery.Done, Pending: stats.Pending,
	}
	if view.Recovered == 0 {
		view.Pending = 0 // no pending delivery belongs to this recovery
	}
	view.Live = !view.Done || view.Pending > 0 && sends(webhook)
	return response{page: "recovery", title: "Resending events", tab: "webhooks", refresh: view.Live, data: view}, nil
}
