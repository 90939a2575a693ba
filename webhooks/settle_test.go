package webhooks_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// whenAPersonChangesIt lists the times at which a user can change a webhook while the result of an
// attempt is processed: before the service decides how the result changes the webhook, or after the
// decision, before it is stored.
var whenAPersonChangesIt = map[string]bool{"before the decision": true, "after the decision": false}

// changedDuringAttempt publishes an event whose receiver answers 410 Gone, and changes the webhook
// during the attempt.
func changedDuringAttempt(t *testing.T, before bool, change webhooks.UpdateParams, check func(*bubble, webhooks.Webhook, *diary, string)) {
	t.Helper()
	var person func()
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if before {
			person()
		}
		w.WriteHeader(http.StatusGone)
	}
	diary := &diary{}
	inBubble(t, webhooks.Config{Observe: diary.observer()}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		changes := 0
		person = func() {
			if changes++; changes == 1 {
				must(b.service.Update(b.Context(), account, webhook.ID, change))
			}
		}
		b.store.beforeSettle = func([]driver.AttemptResult, []driver.HealthChange) { person() }
		b.start()
		event := b.publish()
		time.Sleep(time.Minute)
		synctest.Wait()
		if changes == 0 {
			t.Fatal("nothing was settled")
		}
		check(b, must(b.service.Get(b.Context(), account, webhook.ID)), diary, event)
	})
}

func TestSettle_ConflictWithAnotherChange_DecidesAgain(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{Observe: diary.observer()}, status(http.StatusGone), func(b *bubble) {
		webhook := b.subscribe("a")
		conflicts := 0
		b.store.beforeSettle = func(results []driver.AttemptResult, health []driver.HealthChange) {
			if (len(results) > 0) != (conflicts == 0) {
				t.Errorf("call %d of Settle has %d results, want the results in the first alone", conflicts+1, len(results))
			}
			if conflicts++; conflicts <= 2 && len(health) == 1 {
				must(b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Threshold: new(uint64(conflicts))}))
			}
		}
		b.start()
		event := b.publish()
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantState(event, webhooks.Dead, 1)
		got := must(b.service.Get(b.Context(), account, webhook.ID))
		if got.Active || got.OffReason != webhooks.OffGone || got.Threshold != 2 || got.Version != 4 || conflicts != 3 {
			t.Errorf("after %d calls of Settle the webhook is %+v; want it changed twice and then off", conflicts, got)
		}
		if _, off := diary.told(); len(off) != 1 {
			t.Errorf("%d audit entries of its end, want 1", len(off))
		}
	})
}

func TestSettle_DisabledByUserFirst_StaysDisabled(t *testing.T) {
	for when, before := range whenAPersonChangesIt {
		t.Run(when, func(t *testing.T) {
			change := webhooks.UpdateParams{Active: new(false)}
			changedDuringAttempt(t, before, change, func(b *bubble, got webhooks.Webhook, diary *diary, event string) {
				b.wantState(event, webhooks.Dead, 1)
				if _, off := diary.told(); got.Active || got.OffReason != "" || len(off) != 0 {
					t.Errorf("the webhook is %+v with %d audit entries of the service; want it off by a person alone", got, len(off))
				}
			})
		})
	}
}

func TestSettle_URLChanged_LeavesWebhookUnchanged(t *testing.T) {
	for when, before := range whenAPersonChangesIt {
		t.Run(when, func(t *testing.T) {
			change := webhooks.UpdateParams{URL: new("https://b.example.com" + secretPath)}
			changedDuringAttempt(t, before, change, func(b *bubble, got webhooks.Webhook, _ *diary, event string) {
				b.wantState(event, webhooks.Dead, 1)
				if !got.Active || !got.FailingSince.IsZero() {
					t.Errorf("the webhook is %+v, want it on and not failing", got)
				}
			})
		})
	}
}

func TestSettle_Fails_RetriesUntilStored(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		b.store.fail(nil, errOutage)
		event := b.publish()
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantState(event, webhooks.Pending, 0)
		if stats := must(b.service.Stats(b.Context())); stats.Pending != 1 {
			t.Errorf("%d deliveries are pending, want 1", stats.Pending)
		}
		b.store.fail(nil, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantState(event, webhooks.Delivered, 1)
		got := must(b.service.Get(b.Context(), account, webhook.ID))
		if hits := len(b.hits.of("a")); hits != 1 || !got.Proven() || got.Version != 2 {
			t.Errorf("%d requests, and the webhook is %+v; want 1, and it proven by one change", hits, got)
		}
		if stats := must(b.service.Stats(b.Context())); stats.Pending != 0 {
			t.Errorf("%d deliveries are pending, want none", stats.Pending)
		}
	})
}

// If an earlier call with an unknown outcome has already stored the result, the settlement is
// stale, and the event is not sent again early.
func TestSettle_StoredElsewhere_IsStaleAndForgotten(t *testing.T) {
	for name, code := range map[string]int{"settled": http.StatusOK, "pending again": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Hour}, Jitter: -1}}, status(code), func(b *bubble) {
				b.subscribe("a")
				b.store.beforeSettle = func(results []driver.AttemptResult, _ []driver.HealthChange) {
					must(b.store.Store.Settle(b.Context(), results, nil))
				}
				b.start()
				event := b.publish()
				time.Sleep(59 * time.Minute)
				if hits := len(b.hits.of("a")); hits != 1 {
					t.Errorf("%d requests within an hour, want 1", hits)
				}
				wantPending, wantAttempts, wantState := 0, 1, webhooks.Delivered
				if code != http.StatusOK {
					wantPending, wantAttempts, wantState = 1, 2, webhooks.Dead
				}
				if stats := must(b.service.Stats(b.Context())); stats.Pending != wantPending {
					t.Errorf("%d deliveries are pending, want %d", stats.Pending, wantPending)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				b.wantState(event, wantState, wantAttempts)
			})
		})
	}
}
