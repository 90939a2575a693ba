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

func (p *pages) askPauseWebhook(c *call) (response, error) {
	return p.pauseForm(c, newForm(map[string][]string{"for": {"1h"}}), http.StatusOK)
}

func (p *pages) pauseForm(c *call, f form, status int) (response, error) {
	webhook, err := p.webhooks.Get(c.Context(), c.account, c.PathValue("id"))
	if err != nil {
		return response{}, err
	}
	return response{status: status, page: "webhook-pause", title: "Pause " + webhook.URL, tab: "webhooks",
		data: pauseView{p.viewWebhook(&webhook), f, pauses}}, nil
}

func (p *pages) pauseWebhook(c *call) (response, error) {
	f, id := newForm(c.PostForm), c.PathValue("id")
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
		return p.pauseForm(c, f, http.StatusUnprocessableEntity)
	}
	_, err := p.webhooks.Update(c.Context(), c.account, id, webhooks.UpdateParams{PausedUntil: &until})
	if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
		f.Errors["until"] = sentence(rule.Reason)
		return p.pauseForm(c, f, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return response{}, err
	}
	if until.IsZero() {
		return goTo("webhooks/"+id, "hook-resumed"), nil
	}
	return goTo("webhooks/"+id, "hook-paused"), nil
}

// sends reports whether attempts to send events to the webhook may be made now.
func sends(w *webhooks.Webhook) bool { return w.Claimable() && w.PausedUntil.IsZero() }
