package httpapi

import (
	"errors"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhookView is a webhook in the response to its creation (docs/spec.md, section 2.2). Only the
// responses to a creation and to a rotation contain the secret.
type webhookView struct {
	ID     string               `json:"id"`
	URL    string               `json:"url"`
	Events []webhooks.EventType `json:"events"`

	EventScopes []scopes.Scope `json:"eventScopes,omitempty"`

	Resources []string  `json:"resources,omitempty"`
	Active    bool      `json:"active"`
	Secret    string    `json:"secret,omitempty"`
	CreatedAt timestamp `json:"createdAt"`

	Headers map[string]headerView `json:"headers,omitempty"`

	Signatures []signing.Scheme    `json:"signatures,omitempty"` // absent if only v1
	PublicKeys []signing.PublicKey `json:"publicKeys,omitempty"`
}

// A webhookMadeView adds the threshold to a webhookView if the creation set one.
type webhookMadeView struct {
	webhookView
	Threshold *alerts.Amount `json:"balanceThreshold,omitempty"`
}

// A webhookReadView is a webhook in all responses except to its creation.
type webhookReadView struct {
	webhookView
	Held                    bool                `json:"held,omitempty"`
	Paused                  bool                `json:"paused,omitempty"`
	PausedUntil             timestamp           `json:"pausedUntil,omitzero"`      // absent if the pause has no end
	Threshold               any                 `json:"balanceThreshold,omitzero"` // a *alerts.Amount; absent if balance.low is hidden
	OffReason               *webhooks.OffReason `json:"offReason"`
	FailingSince            timestamp           `json:"failingSince"`
	PreviousSecretExpiresAt timestamp           `json:"previousSecretExpiresAt"`
}

func (a *api) viewWebhookRead(webhook webhooks.Webhook) webhookReadView {
	view := webhookReadView{
		webhookView:             viewWebhook(webhook),
		Held:                    webhook.Held,
		OffReason:               orNull(webhook.OffReason),
		FailingSince:            timestamp(webhook.FailingSince),
		PreviousSecretExpiresAt: timestamp(webhook.PreviousSecretExpiresAt),
	}
	view.Paused, view.PausedUntil = viewPause(&webhook)
	if a.hasBalances() {
		view.Threshold = orNull(alerts.Amount(webhook.Threshold))
	}
	return view
}

// hasBalances reports whether the service offers balance.low. Without it, thresholds have no
// meaning.
func (a *api) hasBalances() bool {
	_, offered := a.webhooks.DeclaredEvent(alerts.TypeBalanceLow)
	return offered
}

// orNull returns a pointer to value, or nil for the zero value.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// showWebhook answers with a webhook, and with its new secret if secret is not empty.
func (a *api) showWebhook(webhook *webhooks.Webhook, secret string) (response, error) {
	view := a.viewWebhookRead(*webhook)
	view.Secret = secret
	return tagged(etag((*listed.Webhook)(webhook)), view)
}

func viewWebhook(webhook webhooks.Webhook) webhookView {
	if !webhook.SubscribesAll() {
		webhook.EventScopes = nil
	}
	return webhookView{
		EventScopes: webhook.EventScopes,

		ID:        webhook.ID,
		URL:       webhook.URL,
		Events:    webhook.Events,
		Resources: webhook.Resources.Names(),
		Active:    webhook.Active,
		CreatedAt: timestamp(webhook.CreatedAt),
		Headers:   viewHeaders(webhook.Headers),

		Signatures: webhook.Signatures,
		PublicKeys: webhook.PublicKeys(),
	}
}

func (a *api) createWebhook(c *call) (response, error) {
	params := webhooks.CreateParams{By: a.credential(c), If: a.mayChangeWebhook(c)}
	wrong := c.bind(a.webhookFields(&params), idempotencyKey(&params.IdempotencyKey))
	if wrong != nil { // Create only validates the other fields
		params.If = func(_, _ webhooks.Webhook) error { return wrong }
	}
	webhook, err := a.webhooks.Create(c.Context(), c.caller.Account, params)
	if err := alsoInvalid(wrong, err); err != nil {
		return response{}, err
	}
	if webhook.Secret.IsZero() { // an earlier request created the webhook
		return a.showCreated(c, webhook.ID)
	}
	view := webhookMadeView{viewWebhook(webhook), orNull(alerts.Amount(webhook.Threshold))}
	view.Secret = webhook.Secret.Reveal()
	return created(c, webhook.ID, view)
}

// showCreated answers with the current state of a webhook that an earlier request created.
func (a *api) showCreated(c *call, webhookID string) (response, error) {
	webhook, err := a.webhooks.Get(c.Context(), c.caller.Account, webhookID)
	switch {
	case errors.Is(err, apierr.ErrNotFound): // the webhook was deleted after Create found it
		return response{}, apierr.ErrCreatedThenDeleted
	case err != nil:
		return response{}, err
	}
	return a.showWebhook(&webhook, "")
}

func (a *api) listWebhooks(c *call) (response, error) {
	after, limit, err := parsePage(c.query, id.Webhook)
	if err != nil {
		return response{}, err
	}
	page, err := a.webhooks.List(c.Context(), c.caller.Account, webhooks.WebhookQuery{Within: c.caller.LimitedTo, After: after, Limit: limit})
	if err != nil {
		return response{}, err
	}
	return showList(page.Webhooks, page.Next, a.viewWebhookRead)
}

func (a *api) getWebhook(c *call) (response, error) {
	webhook, err := a.findWebhook(c)
	if err != nil {
		return response{}, err
	}
	return a.showWebhook(&webhook, "")
}

func (a *api) deleteWebhook(c *call) (response, error) {
	var params webhooks.DeleteParams
	if err := c.bind(nil, a.ifMatchWebhook(&params.If)); err != nil {
		return response{}, err
	}
	if err := a.webhooks.Delete(c.Context(), c.caller.Account, c.webhookID(), params); err != nil {
		return response{}, err
	}
	return noContent(), nil
}

// findWebhook returns the webhook in the caller's account with the ID from the path.
func (a *api) findWebhook(c *call) (webhooks.Webhook, error) {
	webhook, err := a.webhooks.Get(c.Context(), c.caller.Account, c.webhookID())
	if err == nil {
		err = c.sees(webhook.Resources)
	}
	return webhook, err
}

// webhookFields returns the body fields of a webhook creation.
func (a *api) webhookFields(params *webhooks.CreateParams) []field {
	fields := []field{
		required("url", &params.URL, identity),
		required("events", &params.Events, texts),
		optional("resources", &params.Resources, identity),
		optional("secret", &params.Secret, parseSecret),
		headersField(&params.Headers, false),
		optional("signatures", &params.Signatures, texts),
	}
	if a.hasBalances() {
		fields = append(fields, optional(thresholdField, &params.Threshold, a.parseThreshold))
	}
	return fields
}

// webhookPatch returns the body fields of a webhook change.
func (a *api) webhookPatch(params *webhooks.UpdateParams) []field {
	fields := []field{
		patch("url", &params.URL, identity),
		patchValue("events", &params.Events, texts),
		patch("active", &params.Active, identity),
		nullablePatch("resources", &params.Resources, identity),
		headersField(&params.Headers, true),
		patchValue("signatures", &params.Signatures, texts),
	}
	fields = append(fields, pauseFields(&params.PausedUntil)...)
	if a.hasBalances() {
		fields = append(fields, nullablePatch(thresholdField, &params.Threshold, a.parseThreshold))
	}
	return fields
}

// texts converts a list of texts that the service validates.
func texts[T ~string](names []string) ([]T, error) { //nolint:unparam // a field's parse function
	list := make([]T, len(names))
	for i, name := range names {
		list[i] = T(name)
	}
	return list, nil
}

var parseSecret = webhooks.ParseSecret

// thresholdField is the name of [webhooks.Webhook.Threshold] in the API.
const thresholdField = "balanceThreshold"

func (a *api) parseThreshold(s string) (uint64, error) {
	amount, err := a.alerts.ParseAmount(s)
	var wrong *apierr.ValidationError
	switch {
	case errors.As(err, &wrong):
		return 0, invalid(thresholdField, wrong.Reason)
	case err == nil && amount == 0:
		return 0, invalid(thresholdField, "must be greater than 0")
	}
	return uint64(amount), err
}
