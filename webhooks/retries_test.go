package webhooks_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A receiver that never succeeds gets each scheduled attempt, with waits within ±20 %, and no
// more.
func TestRetriesUntilDead(t *testing.T) {
	for name, schedule := range map[string][]time.Duration{
		"default": nil, "short": {10 * time.Second, time.Minute}, "none": {}, "at once": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: schedule}}, status(http.StatusInternalServerError), func(b *bubble) {
				if schedule == nil {
					schedule = webhooks.DefaultRetries()
				}
				b.subscribe("a")
				b.start()
				event, begun := b.publish(), time.Now()
				last := time.Hour
				for _, wait := range schedule {
					last += 2 * wait
				}
				time.Sleep(last)

				hits := b.hits.of("a")
				if len(hits) != 1+len(schedule) {
					t.Fatalf("%d attempts, want %d", len(hits), 1+len(schedule))
				}
				if late := hits[0].at.Sub(begun); late > 0 {
					t.Errorf("the first attempt came after %v", late)
				}
				for i, wait := range schedule {
					gap := hits[i+1].at.Sub(hits[i].at)
					if least, most := wait*8/10, wait*12/10+2*time.Millisecond; gap < least || gap > most {
						t.Errorf("attempt %d came after %v, want %v ±20 %%", i+2, gap, wait)
					}
				}
				b.wantState(event, webhooks.Dead, 1+len(schedule))
				if lines := b.logs.Lines("level=WARN", "given up", event); len(lines) != 1 {
					t.Errorf("logged:\n%s", b.logs)
				}
			})
		})
	}
}

// Every attempt sends the same event with a new signature.
func TestRetries_SendSameEventWithNewSignature(t *testing.T) {
	schedule := []time.Duration{time.Minute, time.Hour, time.Hour}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: schedule}}, failing(2), func(b *bubble) {
		b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(24 * time.Hour)
		b.wantState(event, webhooks.Delivered, 3)
		hits := b.hits.of("a")
		for _, hit := range hits {
			if hit.id != event || hit.header.Get("Webhook-Timestamp") != strconv.FormatInt(hit.at.Unix(), 10) {
				t.Errorf("at %v: %v", hit.at, hit.header)
			}
			if body := "X-Service-Signature"; hit.header.Get(body) != hits[0].header.Get(body) {
				t.Errorf("the signature of the body changed to %s", hit.header.Get(body))
			}
		}
	})
}

func TestRetryAfter_IsRespected(t *testing.T) {
	for value, want := range map[string]time.Duration{"7200": 2 * time.Hour, "1": time.Minute, "999999999": 24 * time.Hour} {
		t.Run(value, func(t *testing.T) {
			fail := failing(1)
			handler := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", value)
				fail(w, r)
			}
			inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}, handler, func(b *bubble) {
				b.subscribe("a")
				b.start()
				b.publish()
				time.Sleep(100 * time.Hour)
				hits := b.hits.of("a")
				if len(hits) != 2 {
					t.Fatalf("%d attempts", len(hits))
				}
				if off := math.Abs(hits[1].at.Sub(hits[0].at).Seconds() - want.Seconds()); off > 12+1 {
					t.Errorf("the next attempt came after %v, want %v", hits[1].at.Sub(hits[0].at), want)
				}
			})
		})
	}
}

// An attempt ends at its timeout, not later.
func TestHangingReceiver_TimesOut(t *testing.T) {
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}, sleeping(time.Hour), func(b *bubble) {
		b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(15*time.Second + time.Millisecond)
		synctest.Wait()
		b.wantState(event, webhooks.Dead, 1)
		if got := b.delivery(event).Attempts[0]; got.Error != "timed out" || got.Duration != 15*time.Second {
			t.Errorf("got %+v", got)
		}
	})
}

// Deliveries of a disabled webhook stay pending, and are made once it is enabled again.
func TestInactiveWebhook_DeliveriesStayPending(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		event := b.publish()
		active := func(on bool) {
			if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Active: new(on)}); err != nil {
				t.Fatal(err)
			}
		}
		active(false)
		b.start()
		time.Sleep(100*time.Hour + time.Minute) // no regular round is due now
		b.wantState(event, webhooks.Pending, 0)
		active(true)
		synctest.Wait()
		b.wantState(event, webhooks.Delivered, 1)
	})
}

// Disabling a webhook between two attempts stops the retries, and uses up no attempt.
func TestDisable_BetweenAttempts_StopsRetries(t *testing.T) {
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute, time.Minute}}}, failing(2), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		event := b.publish()
		synctest.Wait()
		for _, on := range []bool{false, true} {
			b.wantState(event, webhooks.Pending, 1)
			if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Active: new(on)}); err != nil {
				t.Fatal(err)
			}
			if !on {
				time.Sleep(time.Hour)
			}
		}
		time.Sleep(time.Hour)
		b.wantState(event, webhooks.Delivered, 3)
	})
}

// After a 410 the webhook's other deliveries stay pending.
func TestGone_OtherDeliveriesStayPending(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1}}, status(http.StatusGone), func(b *bubble) {
		b.subscribe("a")
		first, second := b.publish(), b.publish()
		b.start()
		time.Sleep(100 * time.Hour)
		b.wantState(first, webhooks.Dead, 1)
		b.wantState(second, webhooks.Pending, 0)
		if n := len(b.hits.of("a")); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// A 413 with Retry-After is temporary.
func TestTooLarge_WithRetryAfter_IsTriedAgain(t *testing.T) {
	inBubble(t, webhooks.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}, func(b *bubble) {
		b.subscribe("a")
		event := b.publish()
		b.start()
		synctest.Wait()
		b.wantState(event, webhooks.Pending, 1)
	})
}

// An event that is too large for its receiver is given up at once. A 413 says nothing about the
// receiver, so the webhook does not count as failing, even after many.
func TestTooLarge_IsGivenUpAndNotHeldAgainstReceiver(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusRequestEntityTooLarge), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		var events []string
		for range 8 {
			events = append(events, b.publish())
		}
		time.Sleep(100 * time.Hour)
		for _, event := range events {
			b.wantState(event, webhooks.Dead, 1)
		}
		want := webhooks.Attempt{Status: 413, Class: webhooks.ClassStatus, Error: "status 413: the event is too large for the receiver, so it is not sent again"}
		if got := b.delivery(events[0]).Attempts[0]; got.Status != want.Status || got.Class != want.Class || got.Error != want.Error {
			t.Errorf("got %+v, want %+v", got, want)
		}
		got, err := b.service.Get(b.Context(), account, webhook.ID)
		stats, statsErr := b.service.WebhookStats(b.Context(), account, webhook.ID)
		if err != nil || statsErr != nil || got.WebhookHealth != webhook.WebhookHealth || stats.LimiterState.Failures != 0 {
			t.Errorf("health %+v, limiter %+v; %v, %v", got.WebhookHealth, stats.LimiterState, err, statsErr)
		}
	})
}
