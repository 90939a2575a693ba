package webhooks_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestUpdateChangesWhatIsGiven(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	steps := []struct {
		params webhooks.UpdateParams
		want   func(*webhooks.Webhook)
	}{
		{webhooks.UpdateParams{}, func(*webhooks.Webhook) {}},
		{webhooks.UpdateParams{URL: ptr("https://example.org/other")}, func(w *webhooks.Webhook) { w.URL = "https://example.org/other" }},
		{
			webhooks.UpdateParams{Events: []webhooks.EventType{webhooks.TypeFilesExpiring, webhooks.TypeBalanceLow, webhooks.TypeFilesExpiring}},
			func(w *webhooks.Webhook) {
				w.Events = []webhooks.EventType{webhooks.TypeFilesExpiring, webhooks.TypeBalanceLow}
			},
		},
		{webhooks.UpdateParams{BalanceThreshold: ptr(webhooks.Amount(7))}, func(w *webhooks.Webhook) { w.BalanceThreshold = 7 }},
		{webhooks.UpdateParams{Active: ptr(false)}, func(w *webhooks.Webhook) { w.Active = false }},
		{webhooks.UpdateParams{Active: ptr(false)}, func(w *webhooks.Webhook) {}},
		{
			webhooks.UpdateParams{URL: ptr(anyURL), Events: onBalance, BalanceThreshold: ptr(webhooks.Amount(0)), Active: ptr(true)},
			func(w *webhooks.Webhook) {
				*w = made
				w.PastEvents = []webhooks.EventType{webhooks.TypeFilesExpiring}
			},
		},
		{
			webhooks.UpdateParams{Events: webhooks.EventTypes()[2:4]},
			func(w *webhooks.Webhook) {
				w.Events = webhooks.EventTypes()[2:4]
				w.PastEvents = []webhooks.EventType{webhooks.TypeFilesExpiring, webhooks.TypeBalanceLow}
			},
		},
		{
			webhooks.UpdateParams{Events: []webhooks.EventType{webhooks.TypeBalanceLow, webhooks.TypeBandwidthLimitReached}},
			func(w *webhooks.Webhook) {
				w.Events = []webhooks.EventType{webhooks.TypeBalanceLow, webhooks.TypeBandwidthLimitReached}
				w.PastEvents = []webhooks.EventType{webhooks.TypeFilesExpiring, webhooks.TypeBandwidthLimitApproaching}
			},
		},
	}
	want := made
	for i, step := range steps {
		step.want(&want)
		got, err := service.Update(t.Context(), account, made.ID, step.params)
		stored, _ := service.Get(t.Context(), account, made.ID)
		if diff := cmp.Diff(want, got); err != nil || diff != "" || !cmp.Equal(got, stored) {
			t.Errorf("step %d (-want +got), %v:\n%s\nstored %+v", i, err, diff, stored)
		}
	}
}

func TestUpdateChecksWhatIsGiven(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	for field, params := range map[string]webhooks.UpdateParams{
		"url":    {URL: ptr("http://example.com"), BalanceThreshold: ptr(webhooks.Amount(7))},
		"events": {Events: []webhooks.EventType{webhooks.TypeTest}, Active: ptr(false)},
	} {
		_, err := service.Update(t.Context(), account, made.ID, params)
		wantInvalid(t, err, field)
		_, err = service.Update(t.Context(), account, "wh_none", params) // before it is looked for
		wantInvalid(t, err, field)
	}
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: ptr(""), Events: []webhooks.EventType{}})
	wantInvalid(t, err, "url")
	_, err = service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Events: []webhooks.EventType{}})
	wantInvalid(t, err, "events")
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || !cmp.Equal(made, got) {
		t.Errorf("it is changed: %+v, %v", got, err)
	}
}

// A condition sees what is and what would be, and its error leaves all as it is.
func TestConditions(t *testing.T) {
	service, no := newClocked(t), errors.New("no")
	made := subscribe(t, service, anyURL)
	var asked []string
	condition := func(name string, err error) webhooks.Condition {
		return func(before, after webhooks.Webhook) error {
			asked = append(asked, fmt.Sprint(name, " ", before.BalanceThreshold, after.BalanceThreshold, before.Secret.Equal(after.Secret)))
			return err
		}
	}
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
	}
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{BalanceThreshold: ptr(webhooks.Amount(1e9)), If: condition("update", no)})
	refused(err)
	_, err = service.RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{Grace: time.Hour, If: condition("rotate", no)})
	refused(err)
	refused(service.DeleteIf(t.Context(), account, made.ID, condition("delete", no)))
	if diff := cmp.Diff([]string{"update 0 1 true", "rotate 0 0 false", "delete 0 0 false"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if got, err := service.Get(t.Context(), account, made.ID); err != nil || !cmp.Equal(made, got) {
		t.Errorf("it is changed: %+v, %v", got, err)
	}
	asked = nil
	_, err = service.Update(t.Context(), account, "wh_none", webhooks.UpdateParams{If: condition("", no)})
	for _, err := range []error{err, service.DeleteIf(t.Context(), account, "wh_none", condition("", no))} {
		if !errors.Is(err, webhooks.ErrNotFound) || len(asked) != 0 {
			t.Errorf("of no webhook: got %v, asked %v", err, asked)
		}
	}
	if err := service.DeleteIf(t.Context(), account, made.ID, condition("delete", nil)); err != nil {
		t.Error(err)
	}
}

// What a condition was asked about is what is changed: if there is something else
// by then, it is asked again.
func TestConditionsAreAskedAboutWhatIsChanged(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	settle := func(t *testing.T, outcome webhooks.Outcome, deactivate webhooks.OffReason) {
		tasks, _, err := store.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 1, PerWebhook: 9, Lease: time.Minute})
		if err != nil || len(tasks) != 1 {
			t.Fatalf("claimed %v, %v", tasks, err)
		}
		end := webhooks.Settlement{
			Task: tasks[0], Outcome: outcome, Deactivate: deactivate,
			Attempt: webhooks.Attempt{Number: 1, StartedAt: noon, Class: webhooks.ClassStatus, Error: "status 410", Status: 410},
		}
		if _, err := store.SettleDeliveries(t.Context(), []webhooks.Settlement{end}); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name      string
		meanwhile func(t *testing.T, id string) error
		again     bool
		want      func(before *webhooks.Webhook) // what it is asked about then
	}{
		{"another update", func(t *testing.T, id string) error {
			_, err := service.Update(t.Context(), account, id, webhooks.UpdateParams{Events: webhooks.EventTypes()})
			return err
		}, true, func(w *webhooks.Webhook) { w.Events = webhooks.EventTypes() }},
		{"a receiver that answers 410", func(t *testing.T, _ string) error {
			settle(t, webhooks.GiveUp, webhooks.OffGone)
			return nil
		}, true, func(w *webhooks.Webhook) { w.Active, w.OffReason, w.FailingSince = false, webhooks.OffGone, noon }},
		{"a failed attempt", func(t *testing.T, _ string) error {
			settle(t, webhooks.Retry, "")
			return nil
		}, false, nil},
		{"nothing", func(*testing.T, string) error { return nil }, false, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			made := subscribe(t, service, anyURL)
			publish(t, service)
			var asked []webhooks.Webhook
			got, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{
				BalanceThreshold: ptr(webhooks.Amount(5)),
				If: func(before, _ webhooks.Webhook) error {
					if asked = append(asked, before); len(asked) == 1 {
						return test.meanwhile(t, made.ID)
					}
					return nil
				},
			})
			want := []webhooks.Webhook{made}
			if test.again {
				second := made
				test.want(&second)
				want = append(want, second)
			}
			if diff := cmp.Diff(want, asked); err != nil || diff != "" || got.BalanceThreshold != 5 {
				t.Errorf("%v, %+v; asked (-want +got):\n%s", err, got, diff)
			}
			if test.again && got.Active != want[1].Active {
				t.Errorf("the other change is undone: %+v", got)
			}
			asks := 0
			err = service.DeleteIf(t.Context(), account, made.ID, func(before, _ webhooks.Webhook) error {
				if asks++; asks > 1 && before.Active {
					t.Errorf("asked about %+v", before)
				}
				_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Active: ptr(false)})
				return err
			})
			if err != nil || asks > 2 || got.Active && asks != 2 {
				t.Errorf("deleted with %v after %d asks", err, asks)
			}
		})
	}
}

// A webhook that is deleted while it is changed stays deleted.
func TestUpdateOfWhatIsDeletedMeanwhile(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{
		Active: ptr(false),
		If:     func(_, _ webhooks.Webhook) error { return service.Delete(t.Context(), account, made.ID) },
	})
	if !errors.Is(err, webhooks.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if list, err := service.List(t.Context(), account, webhooks.Page{Limit: 1}); err != nil || len(list) != 0 {
		t.Errorf("there is %+v, %v", list, err)
	}
}

// Updates at once, each of another field, all come to something; none brings back
// what was deleted.
func TestUpdatesDoNotUndoEachOther(t *testing.T) {
	const rounds = 50
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	url := func(i int) string { return fmt.Sprint(anyURL, "/", i) }
	writers := []func(i int) webhooks.UpdateParams{
		func(i int) webhooks.UpdateParams { return webhooks.UpdateParams{URL: ptr(url(i))} },
		func(i int) webhooks.UpdateParams { return webhooks.UpdateParams{Active: ptr(i%2 == 0)} },
		func(i int) webhooks.UpdateParams { return webhooks.UpdateParams{Events: webhooks.EventTypes()[:1+i%6]} },
		func(i int) webhooks.UpdateParams {
			return webhooks.UpdateParams{BalanceThreshold: ptr(webhooks.Amount(i))}
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
	if err != nil || got.URL != url(last) || got.Active != (last%2 == 0) || len(got.Events) != 1+last%6 || got.BalanceThreshold != last ||
		len(secrets) != rounds || !secrets[got.Secret.Reveal()] || !secrets[got.PreviousSecret.Reveal()] {
		t.Errorf("an update is lost: %+v, %v", got, err)
	}

	for range rounds {
		made := subscribe(t, service, anyURL)
		wg.Go(func() {
			for {
				if _, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Active: ptr(true)}); errors.Is(err, webhooks.ErrNotFound) {
					return
				}
			}
		})
		if err := service.Delete(t.Context(), account, made.ID); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if list, err := service.List(t.Context(), account, webhooks.Page{Limit: 9}); err != nil || len(list) != 1 {
		t.Errorf("there are %d webhooks, %v; want the first", len(list), err)
	}
}

// An attempt under way when the URL changes goes on and counts, and its outcome is
// that of the delivery; of the webhook it changes nothing. Later ones go to the new
// URL.
func TestURLChangesDuringAnAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		state  webhooks.DeliveryState
		hits   int // at the new URL
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
			inBubble(t, webhooks.Config{Hooks: diary.hooks(), Retries: []time.Duration{time.Minute}}, handler, func(b *bubble) {
				webhook := b.subscribe("old")
				underWay := b.publish()
				b.start()
				time.Sleep(time.Second)
				got, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{URL: ptr("https://new.example.com" + secretPath)})
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
				if now, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !cmp.Equal(got, now) {
					t.Errorf("the old receiver changed the webhook: %+v, %v", now, err)
				}
				if _, off := diary.told(); len(off) != 0 || len(b.logs.lines("turned off")) != 0 {
					t.Errorf("told that it was turned off: %v, %v", off, b.logs.lines("turned off"))
				}
			})
		})
	}
}

// A webhook that failed begins anew at another URL.
func TestURLChangeEndsTheFailing(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	made := subscribe(t, service, anyURL)
	_, err := store.UpdateWebhook(t.Context(), account, made.ID, func(w *webhooks.Webhook) error {
		w.FailingSince, w.WarnedAt = noon, noon
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: ptr(anyURL), Active: ptr(true), Events: webhooks.EventTypes()})
	if err != nil || same.FailingSince.IsZero() || same.WarnedAt.IsZero() {
		t.Errorf("with its own URL: %+v, %v", same, err)
	}
	moved, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{URL: ptr(anyURL + "/2")})
	if err != nil || !moved.FailingSince.IsZero() || !moved.WarnedAt.IsZero() {
		t.Errorf("with another URL: %+v, %v", moved, err)
	}
}

// An attempt under way when the webhook is turned off goes on and counts; the rest
// waits, what is published is skipped, and on again the rest goes on.
func TestTurnedOffDuringAnAttempt(t *testing.T) {
	inBubble(t, webhooks.Config{PerWebhook: 1, Concurrency: 2}, sleeping(10*time.Second), func(b *bubble) {
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

// Events decide about what is published; what is owed is sent whatever its type.
func TestEventsChangeForWhatIsPublishedLater(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		owed := b.publish()
		if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Events: webhooks.EventTypes()[:1]}); err != nil {
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
