package httpapi

import "github.com/storageapi/storageapi/webhooks"

func (a *api) updateWebhook(c *call) (response, error) {
	if err := a.seesWebhook(c, c.webhookID()); err != nil { // the webhook's current events decide which events are valid, so hide it first
		return response{}, err
	}
	var params webhooks.UpdateParams
	wrong := c.bind(a.webhookPatch(&params), a.ifMatchWebhook(&params.If))
	if wrong != nil { // Update only validates the other fields
		params.If = func(_, _ webhooks.Webhook) error { return wrong }
	}
	webhook, err := a.webhooks.Update(c.Context(), c.caller.Account, c.webhookID(), params)
	if err := alsoInvalid(wrong, err); err != nil {
		return response{}, err
	}
	return a.showWebhook(&webhook, "")
}

func (a *api) rotateSecret(c *call) (response, error) {
	params := webhooks.RotateParams{Grace: defaultGrace}
	if err := c.bind([]field{optional("graceSeconds", &params.Grace, parseGrace)}, a.ifMatchWebhook(&params.If)); err != nil {
		return response{}, err
	}
	webhook, err := a.webhooks.RotateSecret(c.Context(), c.caller.Account, c.webhookID(), params)
	if err != nil {
		return response{}, err
	}
	return a.showWebhook(&webhook, webhook.Secret.Reveal())
}

// findUsable is like findWebhook, but also checks that the caller may use the webhook.
func (a *api) findUsable(c *call) (webhooks.Webhook, error) {
	webhook, err := a.findWebhook(c)
	if err == nil {
		err = a.mayChangeWebhook(c)(webhook, webhook)
	}
	return webhook, err
}

// A testView is a test event and its attempt.
type testView struct {
	ID      string             `json:"id"`
	Type    webhooks.EventType `json:"type"`
	Attempt attemptView        `json:"attempt"`
}

func (a *api) sendTest(c *call) (response, error) {
	t := webhooks.TypeTest
	if err := c.bind([]field{optional("type", &t, func(name string) (webhooks.EventType, error) { return webhooks.EventType(name), nil })}); err != nil {
		return response{}, err
	}
	webhook, err := a.findUsable(c)
	if err != nil {
		return response{}, err
	}
	event, err := a.webhooks.SendExample(c.Context(), c.caller.Account, webhook.ID, t)
	if err != nil {
		return response{}, err
	}
	return ok(testView{event.ID, event.Type, viewAttempt(event.Attempt)})
}
