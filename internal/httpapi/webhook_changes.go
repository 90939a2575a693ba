package httpapi

import (
	"slices"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// mayChange returns the condition of a change: the caller may do what the route is for
// to the webhook of before and to that of after, and the request's If-Match holds.
func (a *api) mayChange(c *call) (webhooks.Condition, error) {
	match, err := c.ifMatch()
	if err != nil {
		return nil, err
	}
	return func(before, after webhooks.Webhook) error {
		if err := a.permitUse(c, &before, after.Events...); err != nil {
			return err
		}
		return match.checkWebhook(&before)
	}, nil
}

// permitUse asks whether the caller may do what the route is for to the webhook: who
// can have it sent things, or say where to, must be good enough for all that may be
// sent, and for those events.
func (a *api) permitUse(c *call, webhook *webhooks.Webhook, more ...webhooks.EventType) error {
	return a.permitWebhook(c, webhook.ID, slices.Concat(webhook.Events, webhook.PastEvents, more))
}

// findUsable is findWebhook for a route that uses the webhook, if the caller may.
func (a *api) findUsable(c *call) (webhooks.Webhook, error) {
	webhook, err := a.findWebhook(c)
	if err == nil {
		err = a.permitUse(c, &webhook)
	}
	return webhook, err
}

// permitWebhook asks whether the caller may do what the route is for to a webhook of
// those events.
func (a *api) permitWebhook(c *call, id string, events []webhooks.EventType) error {
	return a.permit(c, &auth.Target{ID: id, Scopes: webhooks.ReadScopes(events)})
}

// checkWebhook is check for a webhook.
func (c condition) checkWebhook(webhook *webhooks.Webhook) error {
	tag, err := tagWebhook(webhook)
	if err != nil {
		return err
	}
	return c.check(tag)
}

func (a *api) updateWebhook(c *call) (answer, error) {
	params, err := decodeWebhookUpdate(c.data)
	if err != nil {
		return answer{}, err
	}
	if params, err = a.webhooks.CheckUpdate(params); err != nil {
		return answer{}, err
	}
	if params.If, err = a.mayChange(c); err != nil {
		return answer{}, err
	}
	webhookID, err := c.webhookID()
	if err != nil {
		return answer{}, err
	}
	webhook, err := a.webhooks.Update(c.Context(), c.caller.Account, webhookID, params)
	if err != nil {
		return answer{}, err
	}
	return showWebhook(&webhook, "")
}

func (a *api) rotateSecret(c *call) (answer, error) {
	params := webhooks.RotateParams{Grace: defaultGrace}
	if err := decodeObject(c.data, optional("graceSeconds", &params.Grace, parseGrace)); err != nil {
		return answer{}, err
	}
	var err error
	if params.If, err = a.mayChange(c); err != nil {
		return answer{}, err
	}
	webhookID, err := c.webhookID()
	if err != nil {
		return answer{}, err
	}
	webhook, err := a.webhooks.RotateSecret(c.Context(), c.caller.Account, webhookID, params)
	if err != nil {
		return answer{}, err
	}
	return showWebhook(&webhook, webhook.Secret.Reveal())
}

// A testView is a test event and what came of it.
type testView struct {
	ID      string             `json:"id"`
	Type    webhooks.EventType `json:"type"`
	Attempt attemptView        `json:"attempt"`
}

func (a *api) sendTest(c *call) (answer, error) {
	webhook, err := a.findUsable(c)
	if err != nil {
		return answer{}, err
	}
	event, err := a.webhooks.SendTest(c.Context(), c.caller.Account, webhook.ID)
	if err != nil {
		return answer{}, err
	}
	return ok(testView{event.ID, webhooks.TypeTest, viewAttempt(event.Attempt)})
}

// decodeWebhookUpdate decodes the body that changes a webhook.
func decodeWebhookUpdate(data []byte) (webhooks.UpdateParams, error) {
	var params webhooks.UpdateParams
	var events *[]webhooks.EventType
	err := decodeObject(data,
		changing("url", &params.URL, asIs),
		changing("events", &events, parseEvents),
		changing("active", &params.Active, func(active bool) (bool, error) { return active, nil }),
		clearing("balanceThreshold", &params.BalanceThreshold, parseThreshold),
	)
	if events != nil {
		params.Events = *events
	}
	return params, err
}
