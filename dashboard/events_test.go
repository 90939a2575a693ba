package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/webhooks"
)

func TestEvents(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.get("events").want(http.StatusOK).says("No events yet").hides("Filter")
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/hooks", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	for id, data := range map[string]webhooks.Data{"evt_heard": alerts.BalanceLow{Balance: 1, Threshold: 2}, "evt_unheard": alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: "2026-11"}} {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data}); err != nil {
			t.Fatal(err)
		}
	}

	s.get("webhooks").leadsTo("Events")
	s.get("events").want(http.StatusOK).hides("last 24 hours").says("Low balance evt_heard balance.low 1 webhook 1 pending",
		"Bandwidth limit reached evt_unheard bandwidth.limit_reached No webhook is subscribed")
	s.get("events?type=balance.low").says("evt_heard", "Clear").hides("evt_unheard", "No webhook is subscribed")
	s.get("events?type=bandwidth.limit_reached").says("No webhook is subscribed to this type.", "evt_unheard").hides("evt_heard")
	s.get("events?type=files.expiring").says("No webhook is subscribed to this type.", "No matching events")
	s.get("events?type=%00").want(http.StatusOK).says("evt_heard", "evt_unheard")
	s.get("events?type=balance.low&from=2000-01-01T00:00&to=2001-01-01T00:00").says("No matching events").hides("evt_", "No webhook is subscribed")
	s.get("events?from=2001-01-01&to=2000-01-01").want(http.StatusUnprocessableEntity).says("Must be after “Published from”.")

	s.get("events/evt_heard").want(http.StatusOK).says("Low balance", "https://example.com/hooks "+w.ID+" Pending Not sent", "Exactly as signed", `"threshold"`)
	s.get("events/evt_unheard").want(http.StatusOK).says("None: no webhook is subscribed to this type.")
	s.get("events/evt_unheard?webhook="+w.ID).want(http.StatusOK).says("Why was it sent to this webhook, or not?", "The webhook is not subscribed to the event's type.")
	s.get("events/evt_heard?webhook="+w.ID).says("The delivery waits for its turn;", "or none: whether the receiver is down is not known here.")
	s.get("events/evt_heard?webhook=wh_none").want(http.StatusNotFound)
	s.get("events/evt_none").want(http.StatusNotFound)
	s.get("webhooks/" + w.ID + "/deliveries/evt_heard").leadsTo("All deliveries of the event")

	s.account = bob
	s.get("events").want(http.StatusOK).says("No events yet")
	s.get("events/evt_heard").want(http.StatusNotFound)
	s.get("events/evt_heard?webhook=" + w.ID).want(http.StatusNotFound)

	s.account = alice
	s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action == auth.ReadEvents }})
	s.get("events/evt_heard?webhook="+w.ID).want(http.StatusOK).hides("Explain", "its turn")
}

// The pages must explain why no event has arrived since yesterday.
func TestEvents_NothingPublishedSinceYesterday_PagesSaySo(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(id string, data webhooks.Data) {
		t.Helper()
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	const silent = "No event of the types below was published."
	publish("evt_other", alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: "2026-11"})
	s.get("webhooks/" + w.ID).says(silent)
	publish("evt_1", alerts.BalanceLow{Balance: 1, Threshold: 2})
	s.get("webhooks/" + w.ID).hides(silent)

	s.pages = s.mount(dashboard.Config{Now: func() time.Time { return time.Now().Add(25 * time.Hour) }})
	s.get("webhooks/" + w.ID).says(silent)
	s.get("events").says("Nothing was published in the last 24 hours.", "evt_1")
	s.get("events?type=balance.low").hides("last 24 hours")
}

func TestEvents_DeletedWebhook_HasNoLink(t *testing.T) {
	s, w := newDelivering(t, newReceiver(t))
	s.publish(w.ID, "evt_1")
	s.get("events").says("1 webhook 1 delivered")
	s.get("events/evt_1").says(w.URL, "200 OK", "Resend")
	s.post("webhooks/"+w.ID+"/delete", nil)
	s.get("events/evt_1").want(http.StatusOK).says("Deleted webhook "+w.ID+" Delivered", "200 OK").hides("Resend", "/deliveries/evt_1")
}

func TestEvents_MoreThanAPage_HasOlderOnes(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	for i := range 21 {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: fmt.Sprintf("evt_%02d", i), Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	first := s.get("events?type=balance.low").says("evt_20", "evt_01", "1–20").hides("evt_00", "1–20 of")
	older := first.leadsTo("Older")
	if !strings.Contains(older, "type=balance.low") {
		t.Errorf("the link to older events is %s, want one with the filter", older)
	}
	s.get(older).says("evt_00", "21 of 21", "Newest").hides("evt_01")
}

func TestEvents_UserMayNotReadEvents_AreHidden(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{May: func(_ *http.Request, action auth.Action) bool { return action == auth.ReadWebhooks }})
	s.get("webhooks").want(http.StatusOK).hides(">Events<")
	s.get("events").want(http.StatusForbidden)
	s.get("events/evt_1").want(http.StatusForbidden)
	s.search("balance.low").says("No matches")
}
