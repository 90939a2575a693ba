package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestDeliveries(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	path := "webhooks/" + w.ID
	s.get(path).want(http.StatusOK).says("Nothing sent yet")
	s.get(path + "/deliveries").want(http.StatusOK).says("No deliveries yet")
	s.publish(w.ID, "evt_fine")
	r.answer(http.StatusServiceUnavailable, markup)
	s.publish(w.ID, "evt_dead")
	s.post(path+"/turn", url.Values{"to": {"off"}})
	s.publish(w.ID, "evt_skipped")

	s.get(path+"/deliveries").want(http.StatusOK).says("evt_fine Delivered 200 OK", "evt_dead Failed 503 Service Unavailable", "evt_skipped Skipped Not sent")
	s.get(path+"/deliveries?state=dead&state=skipped").says("evt_dead", "evt_skipped", "Clear").hides("evt_fine")
	s.get(path+"/deliveries?failed=true").says("evt_dead", "evt_skipped", "Clear").hides("evt_fine")
	s.get(path+"/deliveries?failed=true&state=dead").says("evt_dead").hides("evt_fine", "evt_skipped")
	if body := s.get(path + "/deliveries?state=dead&failed=true&after=evt_z").body; !strings.Contains(body, path+`/deliveries?failed=true&amp;state=dead"`) {
		t.Error("links to other pages lose the filters")
	}
	if body := s.get(path).body; !strings.Contains(body, path+`/deliveries?failed=true&amp;state=dead&amp;state=pending"`) {
		t.Error("the webhook's page has no link to the failed deliveries")
	}
	s.get(path+"/deliveries?type=balance.low&state=dead").says("evt_dead", "Clear").hides("evt_fine")
	s.get(path + "/deliveries?type=files.expiring").says("No matching deliveries").hides("evt_")
	s.get(path+"/deliveries?type=invoices.paid").says("invoices.paid (no longer sent)", "No matching deliveries")
	s.get(path+"/deliveries?type=%00").says("evt_fine", "evt_dead")
	s.get(path + "/deliveries?state=pending").says("No matching deliveries").hides("evt_")
	s.get(path + "/deliveries?from=2000-01-01T00:00&to=2001-01-01T00:00").says("No matching deliveries").hides("evt_")
	s.get(path+"/deliveries?from=2000-01-01T00:00").says("evt_fine", "evt_skipped")
	s.get(path + "/deliveries?from=whenever").want(http.StatusUnprocessableEntity).says("Enter a date and time such as")
	s.get(path + "/deliveries?from=2001-01-01&to=2000-01-01").want(http.StatusUnprocessableEntity).says("Must be after “Published from”.")
	whole := s.get(path).says("50%", "Attempts 2").says("evt_skipped", "Low balance")
	failures, after, _ := strings.Cut(whole.body, "Last 24 hours")
	if !strings.Contains(failures, "Recent failures") || !strings.Contains(failures, "evt_dead") || strings.Contains(failures, "evt_fine") || strings.Contains(failures, "evt_skipped") {
		t.Errorf("want only the failed delivery before the figures, in:\n%s", whole.body)
	}
	if !strings.Contains(after, "Other deliveries") || strings.Contains(after, "evt_dead") || !strings.Contains(after, "evt_fine") || !strings.Contains(after, "evt_skipped") {
		t.Errorf("want the other deliveries after the figures, in:\n%s", whole.body)
	}
	s.get("webhooks").says("50% of 2 attempts")

	one := s.get(path+"/deliveries/evt_dead").want(http.StatusOK).says("Failed", "Attempt 1", "503 Service Unavailable", "Webhook-Id evt_dead", "X-Service-Signature [redacted]")
	checkMarkup(t, one)
	s.get(path + "/deliveries/evt_skipped").says("Not sent: the webhook was off when the event was published.")
	s.get(path + "/deliveries/evt_never").want(http.StatusNotFound)
	s.post(path+"/deliveries/evt_never", nil).want(http.StatusNotFound)
}

func TestRedeliver(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	r.answer(http.StatusServiceUnavailable, "")
	s.publish(w.ID, "evt_1")
	r.answer(http.StatusOK, "")
	path := "webhooks/" + w.ID + "/deliveries/evt_1"
	s.follow(s.post(path, nil)).want(http.StatusOK).says("Queued to be sent again.")
	if got := s.settled(w.ID, "evt_1"); got.State != webhooks.Delivered {
		t.Errorf("got %+v", got)
	}
	s.get(path).says("Delivered", "Attempt 2", "Attempt 1")

	s.post("webhooks/"+w.ID+"/turn", url.Values{"to": {"off"}})
	s.follow(s.post(path, nil)).want(http.StatusOK).says("Pending", "Queued until you turn the webhook back on.", "Explanation The webhook has been off since ").hides("Queued to be sent again")
}

// The user selects deliveries on a page of the list. After resending, the same page must be shown
// with its filters.
func TestResend_SelectedDeliveries(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	list := "webhooks/" + w.ID + "/deliveries?state=dead"
	r.answer(http.StatusServiceUnavailable, "")
	for i := range 4 {
		s.publish(w.ID, fmt.Sprintf("evt_%d", i))
	}
	r.answer(http.StatusOK, "")
	shown := s.get(list).want(http.StatusOK).says("Resend selected")
	for _, control := range []string{`<input type="checkbox" form="resend" name="event" value="evt_0"`, `<button class="button" name="event" value="evt_0"`} {
		if !strings.Contains(shown.body, control) {
			t.Errorf("%s is not in:\n%s", control, shown.body)
		}
	}
	s.post(list, shown.form()).want(http.StatusUnprocessableEntity).says("Nothing was resent. Select 1 to 50 deliveries.", "evt_3")
	many := url.Values{"event": slices.Repeat([]string{"evt_0"}, 51)}
	s.post(list, many).want(http.StatusUnprocessableEntity).says("Nothing was resent.", "evt_0")
	s.follow(s.post(list, shown.form("event", "evt_0", "event", "evt_1"))).want(http.StatusOK).
		says("Queued to be sent again.", "Clear", "evt_3").hides("evt_0", "evt_1")
	for i, want := range []webhooks.DeliveryState{webhooks.Delivered, webhooks.Delivered, webhooks.Dead, webhooks.Dead} {
		if got := s.settled(w.ID, fmt.Sprintf("evt_%d", i)); got.State != want {
			t.Errorf("evt_%d: got %s, want %s", i, got.State, want)
		}
	}
	s.post(list, shown.form("event", "evt_2", "event", "evt_never")).want(http.StatusConflict).
		says("1 event queued to be sent again. Not resent: evt_never : the event is no longer stored", "evt_3")
	s.settled(w.ID, "evt_2")
	s.post("webhooks/"+w.ID+"/turn", url.Values{"to": {"off"}})
	s.follow(s.post(list, shown.form("event", "evt_3"))).says("Queued until you turn the webhook back on.")
}

// unlucky is a store that cannot redeliver one of the events.
type unlucky struct{ *memory.Store }

func (u unlucky) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	if eventID == "evt_2" {
		return errors.New("disk full")
	}
	return u.Store.Redeliver(ctx, account, webhookID, eventID, entry)
}

func TestResend_OneFails_QueuesTheOthersAndNamesIt(t *testing.T) {
	s := newSite(t, storageapi.Config{Store: unlucky{memory.New()}})
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/hooks", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	off := false
	if _, err := s.api.Webhooks.Update(t.Context(), alice, w.ID, webhooks.UpdateParams{Active: &off}); err != nil {
		t.Fatal(err)
	}
	form := url.Values{}
	for _, id := range []string{"evt_1", "evt_2", "evt_3"} {
		if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			t.Fatal(err)
		}
		form.Add("event", id)
	}
	s.post("webhooks/"+w.ID+"/deliveries", form).want(http.StatusConflict).
		says("2 events queued to be sent again. Not resent: evt_2 : there was a problem on our side; try again").hides("disk full")
	for id, want := range map[string]webhooks.DeliveryState{"evt_1": webhooks.Pending, "evt_2": webhooks.Skipped, "evt_3": webhooks.Pending} {
		if got, err := s.api.Webhooks.Delivery(t.Context(), alice, w.ID, id); err != nil || got.State != want {
			t.Errorf("%s: got %s, %v, want %s", id, got.State, err, want)
		}
	}
}

func TestRecover(t *testing.T) {
	r := newReceiver(t)
	s, w := newDelivering(t, r)
	r.answer(http.StatusServiceUnavailable, "")
	for i := range 3 {
		s.publish(w.ID, fmt.Sprintf("evt_%d", i))
	}
	r.answer(http.StatusOK, "")
	path := "webhooks/" + w.ID
	form := s.get(path + "/recover").want(http.StatusOK).says("Failed: every attempt failed")
	s.post(path+"/recover", form.form("from", "soon")).want(http.StatusUnprocessableEntity).says("Select at least one.", "Enter a date and time")
	s.post(path+"/recover", form.form("state", "dead", "to", "2999-01-01T00:00")).want(http.StatusUnprocessableEntity).says("Must not be in the future.")
	s.post(path+"/recover", form.form("state", "lost")).want(http.StatusUnprocessableEntity).says("Must be one or more of")
	begun := s.post(path+"/recover", form.form("state", "dead"))
	job := s.follow(begun).want(http.StatusOK).says("Resending events", "Events Failed")
	if !strings.Contains(job.body, `http-equiv="refresh"`) {
		job.says("were sent again") // the job has finished early
	}
	for i := range 3 {
		s.settled(w.ID, fmt.Sprintf("evt_%d", i))
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.follow(begun).text(), "All 3 events were sent again."); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(s.follow(begun).text())
		}
	}
	if done := s.follow(begun); strings.Contains(done.body, "refresh") || strings.Contains(done.body, "data-live") {
		t.Error("the page of a job that is done goes on refreshing")
	}
	s.post(path+"/turn", url.Values{"to": {"off"}})
	s.post(path+"/deliveries/evt_0", nil)
	s.follow(begun).want(http.StatusOK).says("Waiting", "They are sent when you turn the webhook back on.").hides("Sending")
	none := s.post(path+"/recover", form.form("state", "skipped"))
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.follow(none).text(), "There were no events to resend."); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(s.follow(none).text())
		}
	}
	s.follow(none).says("Done").hides("Waiting", "refresh") // even though the webhook has pending deliveries
	other, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: r.URL, Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(begun.header.Get("Location"), "recoveries/")
	s.get("webhooks/" + other.ID + "/recoveries/" + id).want(http.StatusNotFound)
}

// A webhook can have only one running recovery. In this test recoveries make no progress.
func TestRecover_AlreadyRunning_IsRejected(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	w, err := s.api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{URL: "https://example.com/hooks", Events: alerts.EventTypes()})
	if err != nil {
		t.Fatal(err)
	}
	path := "webhooks/" + w.ID + "/recover"
	form := s.get(path).want(http.StatusOK)
	s.follow(s.post(path, form.form("state", "dead"))).want(http.StatusOK)
	s.post(path, form.form("state", "dead")).want(http.StatusConflict).says("already being resent")
}
