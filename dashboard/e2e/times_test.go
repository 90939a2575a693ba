package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// Pages must show times in the reader's time zone. On hover, and without scripts, they must show
// UTC.
func TestTimes(t *testing.T) {
	s := newSite(t)
	webhook := s.subscribe("/hooks", alerts.TypeBalanceLow)
	s.receiver.answer(http.StatusServiceUnavailable, "", 0)
	event := s.publish(low)[0]
	deliveries, err := s.api.Webhooks.EventDeliveries(t.Context(), account, event)
	if err != nil {
		t.Fatal(err)
	}
	published := deliveries[0].PublishedAt.UTC()
	path := "webhooks/" + webhook.ID + "/deliveries"
	inUTC := published.Format("2 Jan 2006, 15:04:05 UTC")

	w := s.open(t)
	w.zone("Asia/Kolkata") // its offset from UTC is not a whole number of hours
	w.visit(path + "/" + event)
	w.see("Published " + published.Add(5*time.Hour+30*time.Minute).Format("2 Jan 2006, 15:04:05") + " GMT+5:30")
	titles := func() string {
		return eval[string](w, `[...document.querySelectorAll("time")].map((time) => time.title).join("\n")`)
	}
	if got := titles(); !strings.Contains(got, inUTC) || strings.Contains(got, "GMT+5:30") {
		t.Errorf("on hover there is %q, want %s", got, inUTC)
	}

	// Times that the reader enters must also be in the reader's time zone.
	w.visit(path)
	w.see("Published from (your time)")
	local := published.Add(5*time.Hour + 30*time.Minute).Truncate(time.Minute)
	for _, test := range []struct {
		from time.Time
		want string
	}{{local, event}, {local.Add(time.Minute), "No matching deliveries"}} {
		eval[bool](w, `document.getElementById("from").value = "`+test.from.Format("2006-01-02T15:04")+`", true`)
		w.click("Filter")
		w.see(test.want)
		shown := "" // set by a script after the page has loaded
		w.wait(func() bool {
			shown = eval[string](w, `location.search != "" ? document.getElementById("from").value : ""`)
			return shown == test.from.Format("2006-01-02T15:04")
		}, func() string { return fmt.Sprintf("it shows %s, want %s", shown, test.from) })
		if asked, want := eval[string](w, `new URLSearchParams(location.search).get("from")`), test.from.Add(-5*time.Hour-30*time.Minute).Format("2006-01-02T15:04:05"); asked != want {
			t.Errorf("it asked for %s, want %s", asked, want)
		}
	}
	w.again("reload")
	if shown := eval[string](w, `document.getElementById("from").value`); shown != local.Add(time.Minute).Format("2006-01-02T15:04") {
		t.Errorf("after a reload it shows %s", shown)
	}

	// The hours of the chart must be in the reader's time zone as well.
	hours := `[...document.querySelectorAll(".hours text")].map((hour) => hour.textContent.slice(-3)).join("")`
	w.visit("webhooks/" + webhook.ID)
	w.see("hours (your time)")
	if got := eval[string](w, hours); strings.Trim(got, ":30") != "" || got == "" {
		t.Errorf("the hours of the chart end in %s, want :30 each", got)
	}

	bare := s.open(t)
	bare.zone("Asia/Kolkata")
	bare.withoutScripts()
	bare.visit(path + "/" + event)
	bare.see("Published " + inUTC)
	bare.visit(path)
	bare.see("Published from (UTC)")
	bare.visit("webhooks/" + webhook.ID)
	bare.see("hours (UTC)")
	if got := eval[string](bare, hours); strings.Trim(got, ":0") != "" || got == "" {
		t.Errorf("the hours of the chart end in %s, want :00 each", got)
	}
}

// When parts of a page are reloaded, its times must stay in the reader's time zone. The converted
// times must not count as a change that requires replacing part of the page.
func TestTimesOfLivePages(t *testing.T) {
	s := newSite(t)
	webhook := s.subscribe("/hooks", alerts.TypeBalanceLow)
	release := sync.OnceFunc(s.receiver.hold())
	defer release()
	id := s.api.Webhooks.NewEventID()
	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: account, Data: low}); err != nil {
		t.Fatal(err)
	}
	w := s.open(t)
	w.zone("Asia/Kolkata")
	w.visit("webhooks/" + webhook.ID + "/deliveries/" + id)
	w.see("GMT+5:30", "Pending")
	eval[bool](w, `document.getElementById("live").marked = true`)
	loads := `performance.getEntriesByType("resource").filter((entry) => entry.initiatorType == "fetch").length`
	w.wait(func() bool { return eval[int](w, loads) >= 2 }, func() string { return "it is not loaded again" })
	if !eval[bool](w, `document.getElementById("live").marked === true`) {
		t.Error("it was replaced although nothing changed")
	}
	release()
	w.see("Delivered", "GMT+5:30")
}
