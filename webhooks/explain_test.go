package webhooks_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// explains checks the explanation for an event and a webhook, and its text. It ignores the fields
// of the event and the last attempt, which it returns.
func (b *bubble) explains(event string, webhook webhooks.Webhook, want webhooks.Explanation, text string) *webhooks.Attempt {
	b.Helper()
	got, err := b.service.Explain(b.Context(), account, event, webhook.ID)
	noError(b, err)
	want.EventID, want.WebhookID = event, webhook.ID
	ignored := cmpopts.IgnoreFields(got, "Type", "Resource", "PublishedAt", "LastAttempt")
	if diff := cmp.Diff(want, got, ignored); diff != "" {
		b.Errorf("explanation (-want +got):\n%s", diff)
	}
	if got.String() != text {
		b.Errorf("got text %q, want %q", got, text)
	}
	return got.LastAttempt
}

// change updates a webhook a minute after the last change.
func (b *bubble) change(webhook webhooks.Webhook, params webhooks.UpdateParams) (at time.Time) {
	b.Helper()
	time.Sleep(time.Minute)
	_, err := b.service.Update(b.Context(), account, webhook.ID, params)
	noError(b, err)
	at = time.Now().UTC().Truncate(time.Millisecond)
	time.Sleep(time.Minute)
	return at
}

// in formats a time as explanations do.
func in(t time.Time) string { return t.Format("2006-01-02 15:04:05 UTC") }

var onBandwidth = []webhooks.EventType{alerts.TypeBandwidthLimitReached}

func TestExplain_NoDelivery(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook, other, before := b.subscribe("a"), b.subscribe("b"), b.subscribe("c")
		b.change(webhook, webhooks.UpdateParams{Threshold: new(uint64(10))})
		b.change(before, webhooks.UpdateParams{Threshold: new(uint64(1))})
		noError(b, b.service.Publish(b.Context(), webhooks.Event{ID: "bandwidth", Account: account, Data: alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: "2026-11"}}))
		wanted := b.publishAbout("x")
		reports := b.reports()
		noError(b, reports.ReportBalance(b.Context(), account, 5)) // below the threshold of one of them
		page, err := b.service.ListEvents(b.Context(), account, webhooks.EventQuery{WebhookID: webhook.ID, Limit: 1})
		noError(b, err)
		crossed := page.Events[0].ID
		later := b.subscribe("d")

		b.explains("evt_none", webhook, webhooks.Explanation{Reason: webhooks.ReasonUnknownEvent}, "The event is not known: it was never published, or its ID is no longer stored.")
		b.explains("bandwidth", webhook, webhooks.Explanation{Reason: webhooks.ReasonNotSubscribed}, "The webhook is not subscribed to the event's type.")
		b.explains(crossed, before, webhooks.Explanation{Reason: webhooks.ReasonThreshold}, "The event was published only for other webhooks, such as those whose threshold was crossed.")
		time.Sleep(time.Minute)
		b.explains(wanted, later, webhooks.Explanation{Reason: webhooks.ReasonCreatedLater}, "The webhook was created after the event was published.")

		// After the event, the webhook is changed so that it would now get the event.
		at := b.change(webhook, webhooks.UpdateParams{Events: onBandwidth})
		changed := webhooks.Explanation{Reason: webhooks.ReasonChangedLater, AsOfNow: true, ChangedAt: at}
		text := " The settings of that time are not stored: they were changed " + in(at) + "."
		b.explains("bandwidth", webhook, changed, "The webhook would get the event now, but did not when it was published."+text)
		b.explains(wanted, webhook, webhooks.Explanation{Reason: webhooks.ReasonWaiting, State: webhooks.Pending, Until: b.deliveryTo(webhook, wanted).NextAttemptAt, Elsewhere: true},
			"The delivery waits for its turn; the next attempt is due "+in(b.deliveryTo(webhook, wanted).NextAttemptAt)+". Another process delivers for the webhook, or none: whether the receiver is down is not known here.")
		// The change is undone: the webhook was subscribed only for some time.
		at = b.change(webhook, webhooks.UpdateParams{Events: onBalance})
		text = " The settings of that time are not stored: they were changed " + in(at) + "."
		b.explains("bandwidth", webhook, webhooks.Explanation{Reason: webhooks.ReasonNotSubscribed, AsOfNow: true, ChangedAt: at}, "The webhook is not subscribed to the event's type."+text)

		// A change of other settings must not count as a change of types or resources.
		b.change(other, webhooks.UpdateParams{Resources: &[]string{"x"}})
		b.change(other, webhooks.UpdateParams{Threshold: new(uint64(2)), URL: new("https://bb.example.com/")})
		filtered := b.publishAbout("y")
		b.explains(filtered, other, webhooks.Explanation{Reason: webhooks.ReasonFiltered}, "The webhook is limited to other resources than the event's.")
		at = b.change(other, webhooks.UpdateParams{Resources: new([]string)})
		b.explains(filtered, other, webhooks.Explanation{Reason: webhooks.ReasonChangedLater, AsOfNow: true, ChangedAt: at},
			"The webhook would get the event now, but did not when it was published. The settings of that time are not stored: they were changed "+in(at)+".")

		for _, of := range []struct{ account, event, webhook string }{
			{account, wanted, "wh_none"}, {account, "evt_none", "wh_none"}, {account, wanted, "\x00"}, {"other", wanted, webhook.ID},
		} {
			if x, err := b.service.Explain(b.Context(), of.account, of.event, of.webhook); !errors.Is(err, apierr.ErrNotFound) || x.Reason != "" {
				b.Errorf("%v: got %+v, %v, want ErrNotFound", of, x, err)
			}
		}
		_, err = b.service.Create(b.Context(), "other", webhooks.CreateParams{URL: anyURL, Events: onBalance})
		noError(b, err)
		b.explains("\x00", webhook, webhooks.Explanation{Reason: webhooks.ReasonUnknownEvent}, "The event is not known: it was never published, or its ID is no longer stored.")

		noError(b, b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}))
		if _, err := b.service.Explain(b.Context(), account, wanted, webhook.ID); !errors.Is(err, apierr.ErrNotFound) {
			b.Errorf("deleted webhook: got %v, want ErrNotFound", err)
		}
	})
}

// deliveryTo returns the delivery of an event to a webhook.
func (b *bubble) deliveryTo(webhook webhooks.Webhook, event string) webhooks.Delivery {
	b.Helper()
	d, err := b.service.Delivery(b.Context(), account, webhook.ID, event)
	noError(b, err)
	return d
}

// TestExplain_Pending adds the reasons why deliveries wait, one at a time. Each new reason must be
// reported in place of the earlier reasons, which still apply.
func TestExplain_Pending(t *testing.T) {
	var aborts atomic.Bool
	handler := func(w http.ResponseWriter, r *http.Request) {
		if aborts.Load() {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusForbidden)
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		event := b.publishAbout("x")
		synctest.Wait()
		next := b.deliveryTo(webhook, event).NextAttemptAt
		last := b.explains(event, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonRefused, Until: next},
			"The delivery waits for a retry; the next attempt is due "+in(next)+". Attempt 1: refused with 403.")
		if last.Status != http.StatusForbidden {
			b.Errorf("last attempt: %+v, want status 403", last)
		}
		aborts.Store(true)
		time.Sleep(10 * time.Second)
		next = b.deliveryTo(webhook, event).NextAttemptAt
		last = b.explains(event, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonFailed, Until: next},
			"The delivery waits for a retry; the next attempt is due "+in(next)+". Attempt 2: "+b.deliveryTo(webhook, event).Attempts[1].Error+".")

		for range 5 { // opens the circuit breaker
			b.publish()
		}
		synctest.Wait()
		waits := b.publishAbout("x")
		synctest.Wait()
		limiter := b.limiterState(webhook)
		if !limiter.Open || !limiter.OpenUntil.After(time.Now()) {
			b.Fatalf("limiter %+v, want it open", limiter)
		}
		until := limiter.OpenUntil.UTC().Truncate(time.Millisecond)
		b.explains(waits, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonCircuitOpen, Until: until},
			"The receiver is down: single probes are sent until one succeeds; the next attempt is due "+in(until)+".")
		b.explains(event, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonFailed, Until: next},
			"The delivery waits for a retry; the next attempt is due "+in(next)+". Attempt 2: "+last.Error+".")

		end := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		b.pause(webhook, end)
		b.explains(waits, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonPaused, Until: end}, "The webhook is paused until "+in(end)+".")
		b.pause(webhook, webhooks.NoEnd)
		b.explains(waits, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonPaused}, "The webhook is paused.")
		hold(b, b.store, webhook)
		b.explains(waits, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonHeld}, "The webhook is on hold after a restore of the service.")
		off := b.change(webhook, webhooks.UpdateParams{Active: new(false)})
		b.explains(waits, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonOff, Since: off}, "The webhook has been off since "+in(off)+".")
		b.change(webhook, webhooks.UpdateParams{Resources: &[]string{"y"}})
		b.explains(waits, webhook, webhooks.Explanation{State: webhooks.Pending, Reason: webhooks.ReasonFiltered}, "The webhook is limited to other resources than the event's.")
	})
}

func TestExplain_Settled(t *testing.T) {
	config := webhooks.Config{
		Retry:     webhooks.RetryPolicy{Delays: []time.Duration{time.Second}},
		Retention: webhooks.Retention{Payloads: time.Hour, Attempts: 2 * time.Hour, EventIDs: 4 * time.Hour},
	}
	var refuses atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if refuses.Load() {
			w.WriteHeader(http.StatusForbidden)
		}
	}
	inBubble(t, config, handler, func(b *bubble) {
		webhook, other := b.subscribe("a"), b.subscribe("b")
		b.change(other, webhooks.UpdateParams{Events: onBandwidth})
		b.start()
		time.Sleep(time.Second)
		event := b.publishAbout("x")
		synctest.Wait()
		b.explains(event, webhook, webhooks.Explanation{State: webhooks.Delivered, Reason: webhooks.ReasonDelivered}, "Delivered. Attempt 1: accepted with 200.")
		noError(b, b.service.Publish(b.Context(), webhooks.Event{ID: event, Account: account, Data: alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: "2026-11"}}))
		b.explains(event, webhook, webhooks.Explanation{State: webhooks.Delivered, Reason: webhooks.ReasonDelivered}, "Delivered. Attempt 1: accepted with 200.")
		b.explains(event, other, webhooks.Explanation{Reason: webhooks.ReasonNotSubscribed}, "The webhook is not subscribed to the event's type.")

		refuses.Store(true)
		dead := b.publish()
		time.Sleep(time.Minute)
		b.explains(dead, webhook, webhooks.Explanation{State: webhooks.Dead, Reason: webhooks.ReasonGivenUp}, "Given up. Attempt 2: refused with 403.")

		b.pause(webhook, time.Now().Add(30*time.Second).Truncate(time.Millisecond))
		limited := b.publishAbout("y")
		_, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Resources: &[]string{"x"}})
		noError(b, err)
		time.Sleep(time.Minute)
		b.explains(limited, webhook, webhooks.Explanation{State: webhooks.Dead, Reason: webhooks.ReasonFiltered}, "The webhook was limited to other resources when the event was due.")

		b.pause(webhook, webhooks.NoEnd)
		expired := b.publishAbout("x")
		off := b.change(webhook, webhooks.UpdateParams{Active: new(false)})
		skipped := b.publishAbout("x")
		b.explains(skipped, webhook, webhooks.Explanation{State: webhooks.Skipped, Reason: webhooks.ReasonOff, Since: off}, "The webhook has been off since "+in(off)+".")
		for _, active := range []bool{true, false} {
			b.change(webhook, webhooks.UpdateParams{Active: &active})
			b.explains(skipped, webhook, webhooks.Explanation{State: webhooks.Skipped, Reason: webhooks.ReasonOff}, "The webhook was off when the event was published.")
		}
		time.Sleep(90 * time.Minute)
		b.explains(expired, webhook, webhooks.Explanation{State: webhooks.Dead, Reason: webhooks.ReasonExpired}, "Given up: no attempt succeeded before the event's retention ended.")
		const old = "The event is so old that the records that would tell are no longer stored."
		time.Sleep(time.Hour)
		b.explains(event, webhook, webhooks.Explanation{Reason: webhooks.ReasonPurged}, old)
		b.explains(event, b.subscribe("c"), webhooks.Explanation{Reason: webhooks.ReasonCreatedLater}, "The webhook was created after the event was published.")
		time.Sleep(2 * time.Hour)
		b.explains(event, webhook, webhooks.Explanation{Reason: webhooks.ReasonUnknownEvent}, "The event is not known: it was never published, or its ID is no longer stored.")
	})
}

// The settings at the publication are not known if the audit entries since then are not kept.
func TestExplain_AuditEntriesPurged_IsUnsure(t *testing.T) {
	config := webhooks.Config{Retention: webhooks.Retention{Payloads: 30 * day, Audit: 14 * day}}
	inBubble(t, config, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.change(webhook, webhooks.UpdateParams{Resources: &[]string{"x"}})
		event, none := b.publishAbout("y"), b.publishAbout("")
		time.Sleep(13 * day)
		b.explains(event, webhook, webhooks.Explanation{Reason: webhooks.ReasonFiltered}, "The webhook is limited to other resources than the event's.")
		time.Sleep(2 * day)
		b.explains(event, webhook, webhooks.Explanation{Reason: webhooks.ReasonFiltered, AsOfNow: true},
			"The webhook is limited to other resources than the event's. The settings of that time are not stored.")
		_, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Resources: &[]string{"y"}})
		noError(b, err)
		time.Sleep(15 * day)
		_, err = b.store.Purge(b.Context(), driver.Purge{AuditEntries: time.Now().Add(-14 * day), Limit: 100})
		noError(b, err)
		b.explains(event, webhook, webhooks.Explanation{Reason: webhooks.ReasonPurged}, "The event is so old that the records that would tell are no longer stored.")
		b.explains(none, webhook, webhooks.Explanation{Reason: webhooks.ReasonFiltered, AsOfNow: true},
			"The webhook is limited to other resources than the event's. The settings of that time are not stored.")
	})
}

// If the webhook never subscribed to the type, no times are compared, so a wrong clock does not
// matter.
func TestExplain_ClockIsSet_NeverSubscribedIsCertain(t *testing.T) {
	clock := testclock.At(noon.Add(1000 * day))
	service := newService(t, memory.New(), webhooks.Config{Now: clock.Now})
	webhook := subscribe(t, service, anyURL) // years after the event, by its clock
	noError(t, service.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: account, Data: alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: "2026-11"}}))
	if x, err := service.Explain(t.Context(), account, "evt_1", webhook.ID); err != nil || x.Reason != webhooks.ReasonNotSubscribed || x.AsOfNow {
		t.Errorf("got %+v, %v, want %s", x, err, webhooks.ReasonNotSubscribed)
	}
}

func TestExplain_ContextEnds_ReturnsItsError(t *testing.T) {
	service := newClocked(t)
	webhook := subscribe(t, service, anyURL)
	ended, end := context.WithCancel(t.Context())
	end()
	if x, err := service.Explain(ended, account, publish(t, service), webhook.ID); !errors.Is(err, context.Canceled) || x.Reason != "" {
		t.Errorf("got %+v, %v, want the context's error", x, err)
	}
}
