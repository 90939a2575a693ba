package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// unchanged returns a condition that fails if the webhook has changed since its form was loaded.
func unchanged(asked string) webhooks.Condition {
	return func(before, _ webhooks.Webhook) error {
		if webhookVersion(&before) != asked {
			return errChanged
		}
		return nil
	}
}

func (p *pages) turnWebhook(c *call) (response, error) {
	id, on := c.PathValue("id"), c.PostForm.Get("to") == "on"
	if !on && c.PostForm.Get("to") != "off" {
		return response{}, badForm{errors.New("neither on nor off")}
	}
	var off time.Time // when the webhook was disabled
	remember := func(before, _ webhooks.Webhook) error {
		off = before.OffAt
		return nil
	}
	if _, err := p.webhooks.Update(c.Context(), c.account, id, webhooks.UpdateParams{Active: &on, If: remember}); err != nil {
		return response{}, err
	}
	a := goTo("webhooks/"+id, c.PostForm.Get("to"))
	if on && !off.IsZero() {
		a.redirect += "&" + url.Values{"off": {minuteOf(off)}}.Encode()
	}
	return a, nil
}

// askTurnOffWebhook asks for confirmation, because events are skipped while a webhook is off.
func (p *pages) askTurnOffWebhook(_ *call, webhook *webhooks.Webhook) (response, error) {
	if !webhook.Active {
		return goTo("webhooks/"+webhook.ID, ""), nil
	}
	return response{page: "webhook-off", title: "Turn off " + webhook.URL, tab: "webhooks", data: p.viewWebhook(webhook)}, nil
}

func (p *pages) releaseWebhook(c *call) (response, error) {
	id := c.PathValue("id")
	if _, err := p.webhooks.Release(c.Context(), c.account, id); err != nil {
		return response{}, err
	}
	return goTo("webhooks/"+id, "released"), nil
}

func (p *pages) testWebhook(c *call) (response, error) {
	t := cmp.Or(webhooks.EventType(c.PostForm.Get("type")), webhooks.TypeTest)
	test, err := p.webhooks.SendExample(c.Context(), c.account, c.PathValue("id"), t)
	if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
		return response{}, badForm{rule}
	}
	if busy, held := errors.Is(err, webhooks.ErrTesting), errors.Is(err, webhooks.ErrHeld); busy || held {
		a, err := p.webhookPage(c, &testView{Busy: busy, Held: held})
		a.status = http.StatusConflict
		return a, err
	}
	if err != nil {
		return response{}, err
	}
	return p.webhookPage(c, &testView{EventID: test.ID, Event: p.viewBody(test.Body), Attempts: []attemptView{p.viewAttempt(test.ID, test.Attempt)}})
}

func (p *pages) askRotateSecret(_ *call, webhook *webhooks.Webhook) (response, error) {
	return p.rotationOfSecret(webhook, newForm(map[string][]string{"grace": {"24h"}})), nil
}

func (p *pages) rotationOfSecret(webhook *webhooks.Webhook, f form) response {
	return response{page: "webhook-rotate", title: "Rotate the signing secret of " + webhook.URL, tab: "webhooks",
		data: rotationView{Webhook: p.viewWebhook(webhook), Form: f}}
}

func (p *pages) rotateSecret(c *call, webhook *webhooks.Webhook) (response, error) {
	id, f := c.PathValue("id"), newForm(c.PostForm)
	grace, ok := f.grace()
	if !ok {
		a := p.rotationOfSecret(webhook, f)
		a.status = http.StatusUnprocessableEntity
		return a, nil
	}
	rotated, err := p.webhooks.RotateSecret(c.Context(), c.account, id, webhooks.RotateParams{Grace: grace, If: unchanged(f.Values.Get("version"))})
	if errors.Is(err, errChanged) { // perhaps the browser sent the same form before
		a := p.webhookMade(webhook, "", true)
		a.status = http.StatusConflict
		return a, nil
	}
	if err != nil {
		return response{}, err
	}
	return p.webhookMade(&rotated, rotated.Secret.Reveal(), true), nil
}

func (p *pages) askDeleteWebhook(_ *call, webhook *webhooks.Webhook) (response, error) {
	return response{page: "webhook-delete", title: "Delete " + webhook.URL, tab: "webhooks", data: webhookPageView{Webhook: p.viewWebhook(webhook)}}, nil
}

func (p *pages) deleteWebhook(c *call) (response, error) {
	if err := p.webhooks.Delete(c.Context(), c.account, c.PathValue("id"), webhooks.DeleteParams{}); err != nil {
		return response{}, err
	}
	return goTo("webhooks", "deleted"), nil
}
