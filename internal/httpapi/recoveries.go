package httpapi

import (
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/webhooks"
)

// A recoveryView is the JSON form of a recovery, a job that sends deliveries again.
type recoveryView struct {
	ID        string                   `json:"id"`
	WebhookID string                   `json:"webhookId"`
	States    []webhooks.DeliveryState `json:"states"`
	From      timestamp                `json:"from"`
	To        timestamp                `json:"to"`
	CreatedAt timestamp                `json:"createdAt"`
	Recovered int                      `json:"recovered"`
	Done      bool                     `json:"done"`
}

func viewRecovery(r webhooks.Recovery) recoveryView {
	return recoveryView{r.ID, r.WebhookID, r.States, timestamp(r.From), timestamp(r.To), timestamp(r.CreatedAt), r.Recovered, r.Done}
}

func (a *api) createRecovery(c *call) (response, error) {
	params := webhooks.RecoverParams{If: a.mayChangeWebhook(c)}
	if err := c.bind(recoveryFields(&params)); err != nil {
		return response{}, err
	}
	recovery, err := a.webhooks.Recover(c.Context(), c.caller.Account, c.webhookID(), params)
	if err != nil {
		return response{}, err
	}
	return accepted(pathOf(c.Request)+"/"+recovery.ID, viewRecovery(recovery))
}

func (a *api) getRecovery(c *call) (response, error) {
	webhook, err := a.findWebhook(c)
	if err != nil {
		return response{}, err
	}
	recovery, err := a.webhooks.Recovery(c.Context(), c.caller.Account, wellFormed(id.Recovery, c.subID))
	if errors.Is(err, apierr.ErrNotFound) || err == nil && recovery.WebhookID != webhook.ID {
		return response{}, errNoRecovery
	}
	if err != nil {
		return response{}, err
	}
	return ok(viewRecovery(recovery))
}

// recoveryFields returns the body fields of a recovery.
func recoveryFields(params *webhooks.RecoverParams) []field {
	return []field{
		optional("from", &params.From, parseBound("from")),
		optional("to", &params.To, parseBound("to")),
		optional("states", &params.States, parseStates),
	}
}

func parseStates(names []string) ([]webhooks.DeliveryState, error) {
	if len(names) == 0 {
		return nil, invalid("states", "must name at least one state; if omitted, the states are dead and skipped")
	}
	states := make([]webhooks.DeliveryState, len(names))
	for i, name := range names {
		states[i] = webhooks.DeliveryState(name)
	}
	return states, nil
}
