package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestUpdate_ChangesOnlyGivenFields(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	steps := []struct {
		params webhooks.UpdateParams
		want   func(*webhooks.Webhook)
	}{
		{webhooks.UpdateParams{}, func(*webhooks.Webhook) {}},
		{webhooks.UpdateParams{URL: new("https://example.org/other")}, func(w *webhooks.Webhook) { w.URL = "https://example.org/other" }},
		{
			webhooks.UpdateParams{Events: []webhooks.EventType{alerts.TypeFilesExpiring, alerts.TypeBalanceLow, alerts.TypeFilesExpiring}},
			func(w *webhooks.Webhook) {
				w.Events = []webhooks.EventType{alerts.TypeFilesExpiring, alerts.TypeBalanceLow}
			},
		},
		{webhooks.UpdateParams{Threshold: new(uint64(7))}, func(w *webhooks.Webhook) { w.Threshold = 7 }},
		{webhooks.UpdateParams{Active: new(false)}, func(w *webhooks.Webhook) { w.Active, w.OffAt = false, noon }},
		{webhooks.UpdateParams{Active: new(false)}, func(w *webhooks.Webhook) {}},
		{
			webhooks.UpdateParams{URL: new(anyURL), Events: onBalance, Threshold: new(uint64(0)), Active: new(true)},
			func(w *webhooks.Webhook) {
				*w = made
				w.PastEvents = []webhooks.EventType{alerts.TypeFilesExpiring}
			},
		},
		{
			webhooks.UpdateParams{Events: alerts.EventTypes()[2:4]},
			func(w *webhooks.Webhook) {
				w.Events = alerts.EventTypes()[2:4]
				w.PastEvents = []webhooks.EventType{alerts.TypeFilesExpiring, alerts.TypeBalanceLow}
			},
		},
		{
			webhooks.UpdateParams{Events: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeBandwidthLimitReached}},
			func(w *webhooks.Webhook) {
				w.Events = []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeBandwidthLimitReached}
				w.PastEvents = []webhooks.EventType{alerts.TypeFilesExpiring, alerts.TypeBandwidthLimitApproaching}
			},
		},
	}
	want := made
	for i, step := range steps {
		step.want(&want)
		got, err := service.Update(t.Context(), account, made.ID, step.params)
		stored, _ := service.Get(t.Context(), account, made.ID)
		want.Version = got.Version
		if diff := cmp.Diff(want, got); err != nil || diff != "" || !cmp.Equal(got, stored) {
			t.Errorf("step %d (-want +got), %v:\n%s\nstored %+v", i, err, diff, stored)
		}
	}
}

func TestUpdate_InvalidField_ReturnsError(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	for field, params := range map[string]webhooks.UpdateParams{
		"url":    {URL: new("http://example.com"), Threshold: new(uint64(7))},
		"events": {Events: []webhooks.EventType{webhooks.TypeTest}, Active: new(false)},
	} {
		_, err := service.Update(t.Context(), account, made.ID, params)
		wantInvalid(t, err, field)
		_, err = service.Update(t.Context(), account, "wh_none", params) // fails before the webhook is read
		wantInvalid(t, err, field)
	}
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: new(""), Events: []webhooks.EventType{}})
	wantInvalid(t, err, "url")
	_, err = service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Events: []webhooks.EventType{}})
	wantInvalid(t, err, "events")
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || !cmp.Equal(made, got) {
		t.Errorf("it is changed: %+v, %v", got, err)
	}
}

// Concurrent updates of different fields all take effect; none restores a deleted webhook.
func TestUpdate_Concurrent_AllTakeEffect(t *testing.T) {
	const rounds = 50
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	url := func(i int) string { return fmt.Sprint(anyURL, "/", i) }
	writers := []func(i int) webhooks.UpdateParams{
		func(i int) webhooks.UpdateParams { return webhooks.UpdateParams{URL: new(url(i))} },
		func(i int) webhooks.UpdateParams { return webhooks.UpdateParams{Active: new(i%2 == 0)} },
		func(i int) webhooks.UpdateParams { return webhooks.UpdateParams{Events: alerts.EventTypes()[:1+i%6]} },
		func(i int) webhooks.UpdateParams {
			return webhooks.UpdateParams{Threshold: new(uint64(i))}
		},
	}
	var wg sync.WaitGroup
	secrets := make(map[string]bool)
	for _, params := range writers {
		wg.Go(func() {
			for i := range rounds {
				if _, err := service.Update(t.Context(), account, made.ID, params(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			rotated, err := service.RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{Grace: time.Hour})
			if err != nil {
				t.Error(err)
			}
			secrets[rotated.Secret.Reveal()] = true
		}
	})
	wg.Wait()
	got, err := service.Get(t.Context(), account, made.ID)
	const last = rounds - 1
	if err != nil || got.URL != url(last) || got.Active != (last%2 == 0) || len(got.Events) != 1+last%6 || got.Threshold != last ||
		len(secrets) != rounds || !secrets[got.Secret.Reveal()] || !secrets[got.PreviousSecret.Reveal()] {
		t.Errorf("an update is lost: %+v, %v", got, err)
	}

	for range rounds {
		made := subscribe(t, service, anyURL)
		wg.Go(func() {
			for {
				if _, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Active: new(true)}); errors.Is(err, apierr.ErrNotFound) {
					return
				}
			}
		})
		if err := service.Delete(t.Context(), account, made.ID, webhooks.DeleteParams{}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if list, err := service.List(t.Context(), account, webhooks.WebhookQuery{Limit: 9}); err != nil || len(list.Webhooks) != 1 {
		t.Errorf("there are %d webhooks, %v; want the first", len(list.Webhooks), err)
	}
}

// If the URL changes during an attempt, the attempt continues, and its result counts for the
// delivery but not for the webhook. Later attempts go to the new URL.
func TestURLChange_DuringAttempt_ResultCounts(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		state  webhooks.DeliveryState
		hits   int // requests to the new URL
	}{
		"gone":      {http.StatusGone, webhooks.Dead, 0},
		"failed":    {http.StatusInternalServerError, webhooks.Delivered, 1},
		"succeeded": {http.StatusOK, webhooks.Delivered, 0},
	} {
		t.Run(name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, r *http.Request) {
				if r.Host == "old.example.com" {
					time.Sleep(10 * time.Second)
					w.WriteHeader(test.status)
				}
			}
			diary := &diary{}
			inBubble(t, webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}, handler, func(b *bubble) {
				webhook := b.subscribe("old")
				underWay := b.publish()
				b.start()
				time.Sleep(time.Second)
				got, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{URL: new("https://new.example.com" + secretPath)})
				if err != nil {
					t.Fatal(err)
				}
				later := b.publish()
				time.Sleep(time.Hour)
				b.wantState(underWay, test.state, 1+test.hits)
				b.wantState(later, webhooks.Delivered, 1)
				if old, new := len(b.hits.of("old")), len(b.hits.of("new")); old != 1 || new != 1+test.hits {
					t.Errorf("%d requests to the old URL, %d to the new one", old, new)
				}
				now, err := b.service.Get(b.Context(), account, webhook.ID)
				if now.ProvenAt.Sub(got.CreatedAt) < time.Second {
					t.Errorf("proven at %v, by the old receiver", now.ProvenAt)
				}
				got.ProvenAt, got.Version = now.ProvenAt, now.Version
				if err != nil || !cmp.Equal(got, now) {
					t.Errorf("the old receiver changed the webhook: %+v, %v", now, err)
				}
				if _, off := diary.told(); len(off) != 0 || len(b.logs.Lines("webhook disabled")) != 0 {
					t.Errorf("reported that it was disabled: %v, %v", off, b.logs.Lines("webhook disabled"))
				}
			})
		})
	}
}

// A failing webhook no longer counts as failing after its URL changes.
func TestURLChange_FailingWebhook_StartsOver(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	made := subscribe(t, service, anyURL)
	_, err := store.UpdateWebhook(t.Context(), account, made.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
		w.FailingSince, w.WarnedAt = noon, noon
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: new(anyURL), Active: new(true), Events: alerts.EventTypes()})
	if err != nil || same.FailingSince.IsZero() || same.WarnedAt.IsZero() {
		t.Errorf("with its own URL: %+v, %v", same, err)
	}
	moved, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: new(anyURL + "/2")})
	if err != nil || !moved.FailingSince.IsZero() || !moved.WarnedAt.IsZero() {
		t.Errorf("with another URL: %+v, %v", moved, err)
	}
}

// If a webhook is disabled during an attempt, the attempt continues and counts. Other deliveries
// wait, new events are skipped, and the waiting deliveries are made once the webhook is enabled
// again.
func TestDisable_DuringAttempt_ResultCounts(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1, Total: 2}}, sleeping(10*time.Second), func(b *bubble) {
		webhook := b.subscribe("a")
		underWay, waiting := b.publish(), b.publish()
		b.start()
		time.Sleep(time.Second)
		b.setActive(webhook, false)
		skipped := b.publish()
		time.Sleep(time.Hour)
		b.wantState(underWay, webhooks.Delivered, 1)
		b.wantState(waiting, webhooks.Pending, 0)
		b.wantState(skipped, webhooks.Skipped, 0)
		b.setActive(webhook, true)
		time.Sleep(time.Minute)
		b.wantState(waiting, webhooks.Delivered, 1)
		b.wantState(skipped, webhooks.Skipped, 0)
	})
}

// An update of Events applies to events published later. Pending deliveries are sent regardless of
// their type.
func TestUpdate_Events_ApplyToLaterEvents(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		owed := b.publish()
		if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Events: alerts.EventTypes()[:1]}); err != nil {
			t.Fatal(err)
		}
		unheard := b.publish()
		b.start()
		time.Sleep(time.Minute)
		b.wantState(owed, webhooks.Delivered, 1)
		if list := deliveries(b, b.service, unheard); len(list) != 0 {
			t.Errorf("it is sent %+v", list)
		}
	})
}

// A function that a host adds must not replace the function of package alerts.
func TestOnChange_TwoFunctions_BothAreCalled(t *testing.T) {
	service := newClocked(t)
	var got []string
	for _, name := range []string{"first", "second"} {
		service.OnChange(func(_ context.Context, w webhooks.Webhook) { got = append(got, name+" "+w.URL) })
	}
	made := subscribe(t, service, anyURL)
	if _, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: new("https://example.org/other")}); err != nil {
		t.Fatal(err)
	}
	want := []string{"first " + anyURL, "second " + anyURL, "first https://example.org/other", "second https://example.org/other"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
