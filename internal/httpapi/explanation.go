package httpapi

import (
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// An explanationView says why an event was or was not delivered to a webhook.
type explanationView struct {
	EventID     string                  `json:"eventId"`
	WebhookID   string                  `json:"webhookId"`
	Type        webhooks.EventType      `json:"type"`
	Resource    string                  `json:"resource,omitempty"`
	PublishedAt timestamp               `json:"publishedAt"`
	Reason      webhooks.Reason         `json:"reason"`
	Summary     string                  `json:"summary"`
	State       *webhooks.DeliveryState `json:"state"`
	LastAttempt *attemptView            `json:"lastAttempt"`
	Since       timestamp               `json:"since"`
	Until       timestamp               `json:"until"`
	AsOfNow     bool                    `json:"asOfNow"`
	ChangedAt   timestamp               `json:"changedAt"`
	Elsewhere   bool                    `json:"elsewhere"`
}

// explainDelivery requires the authority to read both the event and the webhook.
func (a *api) explainDelivery(c *call) (response, error) {
	if err := a.permitTo(c, auth.ReadWebhooks, nil); err != nil {
		return response{}, err
	}
	webhook, err := a.findWebhook(c)
	if err != nil {
		return response{}, err
	}
	x, err := a.webhooks.Explain(c.Context(), c.caller.Account, c.subID, webhook.ID)
	if err != nil {
		return response{}, err
	}
	if x.Reason == webhooks.ReasonUnknownEvent || !c.caller.Allows(x.Resource) {
		return response{}, errNoEvent
	}
	if err := a.mayReadEvent(c, x.EventID, x.Type, x.Resource); err != nil {
		return response{}, err
	}
	view := explanationView{
		EventID: x.EventID, WebhookID: x.WebhookID, Type: x.Type, Resource: x.Resource, PublishedAt: timestamp(x.PublishedAt),
		Reason: x.Reason, Summary: x.String(), State: orNull(x.State), Since: timestamp(x.Since), Until: timestamp(x.Until),
		AsOfNow: x.AsOfNow, ChangedAt: timestamp(x.ChangedAt), Elsewhere: x.Elsewhere,
	}
	if x.LastAttempt != nil {
		last := viewAttempt(*x.LastAttempt)
		view.LastAttempt = &last
	}
	return ok(view)
}
