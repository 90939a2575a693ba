package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// pauses are the lengths of a pause that users can choose.
var pauses = []choice{
	{"1h", "1 hour"},
	{"4h", "4 hours"},
	{"24h", "1 day"},
	{"never", "No end"},
	{"date", "Until a date"},
}

// A pauseView is the template data for the form that pauses a webhook.
type pauseView struct {
	Webhook webhookView
	Form    form
	Pauses  []choice
}

func (p *pages) askPauseWebhook(_ *call, webhook *webhooks.Webhook) (response, error) {
	return p.pauseForm(webhook, newForm(map[string][]string{"for": {"1h"}}), http.StatusOK), nil
}

func (p *pages) pauseForm(webhook *webhooks.Webhook, f form, status int) response {
	return response{status: status, page: "webhook-pause", title: "Pause " + webhook.URL, tab: "webhooks",
		data: pauseView{p.viewWebhook(webhook), f, pauses}}
}

func (p *pages) pauseWebhook(c *call, webhook *webhooks.Webhook) (response, error) {
	f := newForm(c.PostForm)
	var until time.Time
	switch length := f.Values.Get("for"); {
	case length == "resume":
	case !slices.ContainsFunc(pauses, func(c choice) bool { return c.Value == length }):
		f.Errors["for"] = "Select how long to pause."
	case length == "never":
		until = webhooks.NoEnd
	case length == "date":
		if until = f.moment("until"); until.IsZero() && f.Errors["until"] == "" {
			f.Errors["until"] = "Enter when the pause ends."
		}
	default:
		d, err := time.ParseDuration(length)
		if err != nil {
			return response{}, err
		}
		until = p.now().Add(d)
	}
	if len(f.Errors) > 0 {
		return p.pauseForm(webhook, f, http.StatusUnprocessableEntity), nil
	}
	_, err := p.webhooks.Update(c.Context(), c.account, webhook.ID, webhooks.UpdateParams{PausedUntil: &until})
	if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
		f.Errors["until"] = sentence(rule.Reason)
		return p.pauseForm(webhook, f, http.StatusUnprocessableEntity), nil
	}
	if err != nil {
		return response{}, err
	}
	if until.IsZero() {
		return goTo("webhooks/"+webhook.ID, "hook-resumed"), nil
	}
	return goTo("webhooks/"+webhook.ID, "hook-paused"), nil
}

// sends reports whether the webhook may receive events now.
func sends(w *webhooks.Webhook) bool { return w.Claimable() && w.PausedUntil.IsZero() }
