package httpapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// Thresholds apply only to reports. Events that the host publishes itself go to all subscribers.
func TestPublish_BalanceLow_IgnoresThresholds(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	want := make(map[string]webhooks.DeliveryState)
	for _, threshold := range []string{`"0.000000001"`, `"1000"`, `null`} {
		made := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"],"balanceThreshold":`+threshold+`}`).want(201, "")
		want[made.text("id")] = webhooks.Pending
	}
	if diff := cmp.Diff(want, h.publishBalance(t, "evt_1")); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// A webhook belongs to the account, so changes of the key that created it must not affect it.
func TestWebhookOutlivesItsKey(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	id, maker := h.key(alice, allScopes()...)
	webhook := h.do("POST", webhooksPath, maker, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	h.do("DELETE", "/v2/api-keys/"+id, admin, "").want(204, "")

	h.do("GET", webhooksPath+"/"+webhook, maker, "").want(401, "UNAUTHORIZED")
	h.do("GET", webhooksPath+"/"+webhook, admin, "").want(200, "")
	if diff := cmp.Diff(map[string]webhooks.DeliveryState{webhook: webhooks.Pending}, h.publishBalance(t, "evt_1")); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// publishBalance publishes a low balance in alice's account. It returns the state of the delivery
// to each webhook.
func (h *host) publishBalance(t *testing.T, event string) map[string]webhooks.DeliveryState {
	t.Helper()
	if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: event, Account: alice, Data: alerts.BalanceLow{Balance: 5, Threshold: 10}}); err != nil {
		t.Fatal(err)
	}
	list, err := h.api.Webhooks.EventDeliveries(t.Context(), alice, event)
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]webhooks.DeliveryState)
	for _, d := range list {
		states[d.WebhookID] = d.State
	}
	return states
}
