package dashboard_test

import (
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// If a connection is refused, the time until then must not count as a response time.
func TestHealth_NoResponse_HasNoResponseTime(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	r.Close()
	s.publish(w.ID, "evt_1")
	s.get("webhooks").says("0% of 1 attempt").hides("median")
	s.get("webhooks/"+w.ID).says("Success rate 0%", "Response time –", "Attempts per hour").hides("median")
}

func TestHealth_ManyDeliveries_UsesLimitedNumberAndSaysSo(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	s.get("webhooks").says("No attempts in the last 24 hours")
	for range 201 {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	s.get("webhooks").says("No attempts for the most recent events")
	s.get("webhooks/" + w.ID).hides("Based on the most recent deliveries only").says("Pending 201")
	for range 800 {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	s.get("webhooks/"+w.ID).says("Based on the most recent deliveries only, published since", "Pending 1001")
}
