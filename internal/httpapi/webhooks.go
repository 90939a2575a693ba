package httpapi

import (
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/invalid"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhookView is a webhook as SPEC 2.2 shows it. The secret is there only in
// the answer that creates the webhook.
type webhookView struct {
	ID        string               `json:"id"`
	URL       string               `json:"url"`
	Events    []webhooks.EventType `json:"events"`
	Active    bool                 `json:"active"`
	Secret    string               `json:"secret,omitempty"`
	CreatedAt timestamp            `json:"createdAt"`
}

func viewWebhook(webhook webhooks.Webhook) webhookView {
	return webhookView{
		ID:        webhook.ID,
		URL:       webhook.URL,
		Events:    webhook.Events,
		Active:    webhook.Active,
		CreatedAt: timestamp(webhook.CreatedAt),
	}
}

func (a *api) createWebhook(c *call) (answer, error) {
	data, err := c.body()
	if err != nil {
		return answer{}, err
	}
	params, err := decodeWebhook(data)
	if err != nil {
		return answer{}, err
	}
	if params.IdempotencyKey, err = c.idempotencyKey(); err != nil {
		return answer{}, err
	}
	if params, err = a.webhooks.Check(params); err != nil {
		return answer{}, err
	}
	if err := a.permit(c, &auth.Target{Scopes: webhooks.ReadScopes(params.Events)}); err != nil {
		return answer{}, err
	}
	webhook, err := a.webhooks.Create(c.Context(), c.caller.Account, params)
	if err != nil {
		return answer{}, err
	}
	if webhook.Secret.IsZero() { // made by an earlier request
		return ok(viewWebhook(webhook))
	}
	view := viewWebhook(webhook)
	view.Secret = webhook.Secret.Reveal()
	return created(c, webhook.ID, view)
}

func (a *api) listWebhooks(c *call) (answer, error) {
	fetch := func(after string, limit int) ([]webhooks.Webhook, error) {
		return a.webhooks.List(c.Context(), c.caller.Account, webhooks.Page{After: after, Limit: limit})
	}
	return list(c, id.Webhook, fetch, func(w webhooks.Webhook) (string, any) { return w.ID, viewWebhook(w) })
}

func (a *api) getWebhook(c *call) (answer, error) {
	webhook, err := a.findWebhook(c)
	if err != nil {
		return answer{}, err
	}
	return ok(viewWebhook(webhook))
}

func (a *api) deleteWebhook(c *call) (answer, error) {
	webhook, err := a.findWebhook(c)
	if err != nil {
		return answer{}, err
	}
	if err := a.permit(c, &auth.Target{ID: webhook.ID, Scopes: webhooks.ReadScopes(webhook.Events)}); err != nil {
		return answer{}, err
	}
	if err := a.webhooks.Delete(c.Context(), c.caller.Account, webhook.ID); err != nil {
		return answer{}, err
	}
	return noContent(), nil
}

// findWebhook returns the caller's webhook that the path names. What is no id is
// unknown.
func (a *api) findWebhook(c *call) (webhooks.Webhook, error) {
	if !id.Valid(id.Webhook, c.id) {
		return webhooks.Webhook{}, webhooks.ErrNotFound
	}
	return a.webhooks.Get(c.Context(), c.caller.Account, c.id)
}

// decodeWebhook decodes the body that creates a webhook (SPEC 4.2).
func decodeWebhook(data []byte) (webhooks.CreateParams, error) {
	var params webhooks.CreateParams
	err := decodeObject(data,
		required("url", &params.URL, asIs),
		required("events", &params.Events, parseEvents),
		optional("balanceThreshold", &params.BalanceThreshold, parseThreshold),
	)
	return params, err
}

func parseEvents(names []string) ([]webhooks.EventType, error) {
	events := make([]webhooks.EventType, len(names))
	for i, name := range names {
		events[i] = webhooks.EventType(name)
	}
	return events, nil
}

func parseThreshold(s string) (webhooks.Amount, error) {
	amount, err := webhooks.ParseAmount(s)
	if err == nil && amount == 0 {
		err = invalid.Field("balanceThreshold", "must be greater than 0")
	}
	return amount, err
}
