package webhooks_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A receiver that works again gets all pending events at once, including the events that were used
// as probes, although their next attempts are minutes or hours away.
func TestRecoveredReceiver_EventsWaitForRetry_GetsThemAtOnce(t *testing.T) {
	for _, length := range []time.Duration{20 * time.Second, 75 * time.Second, 20 * time.Minute, day} {
		t.Run(length.String(), func(t *testing.T) {
			var up atomic.Bool
			handler := func(w http.ResponseWriter, _ *http.Request) {
				if !up.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
			inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
				b.subscribe("a")
				b.start()
				var events []string
				for range 8 {
					events = append(events, b.publish())
				}
				time.Sleep(length)
				up.Store(true)
				last := b.publish()
				time.Sleep(2 * time.Minute) // until the breaker has let a probe through
				synctest.Wait()
				for _, event := range append(events, last) {
					if got := b.delivery(event).State; got != webhooks.Delivered {
						b.Errorf("%s is %s two minutes after the repair, next attempt at %v (now %v)", event, got, b.delivery(event).NextAttemptAt, time.Now())
					}
				}
			})
		})
	}
}

// If a receiver always refuses some events, at most every other attempt of these events is early,
// no matter how often other events succeed.
func TestRefusedEvents_WhileOthersSucceed_UseHalfOfTheSchedule(t *testing.T) {
	refused := make(map[string]bool)
	var mu atomic.Pointer[map[string]bool]
	mu.Store(&refused)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if (*mu.Load())[r.Header.Get("Webhook-Id")] {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		b.subscribe("a")
		var events []string
		for range 8 {
			events = append(events, b.publish())
		}
		for _, event := range events {
			refused[event] = true
		}
		b.start()
		for range 24 * 6 { // a day, with an event every ten minutes
			time.Sleep(10 * time.Minute)
			b.publish()
		}
		for _, event := range events {
			d := b.delivery(event)
			if d.State != webhooks.Pending || len(d.Attempts) > 9 {
				b.Errorf("%s is %s after %d attempts in a day, want pending", event, d.State, len(d.Attempts))
			}
		}
	})
}

// A wait that the receiver asked for is not shortened.
func TestRecoveredReceiver_AskedToWait_WaitsAsLong(t *testing.T) {
	var up atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		b.subscribe("a")
		b.start()
		events := []string{}
		for range 8 {
			events = append(events, b.publish())
		}
		time.Sleep(time.Minute)
		up.Store(true)
		b.publish()
		time.Sleep(time.Hour)
		asked := 0
		for _, event := range events {
			if d := b.delivery(event); len(d.Attempts) > 0 && d.Attempts[0].Class != "" {
				asked++
				b.wantState(event, webhooks.Pending, 1)
			}
		}
		if asked == 0 {
			b.Error("no event was answered with Retry-After")
		}
	})
}

// Recover makes pending events due at once, whether or not the receiver works again.
func TestRecover_PendingEvents_AreAttemptedNow(t *testing.T) {
	var down atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		b.publish()
		time.Sleep(time.Second)
		down.Store(true)
		event := b.publish()
		time.Sleep(4 * time.Hour)
		down.Store(false)
		before := len(b.delivery(event).Attempts)
		recovery, err := b.service.Recover(b.Context(), account, webhook.ID, webhooks.RecoverParams{States: []webhooks.DeliveryState{webhooks.Pending}})
		b.must(err)
		time.Sleep(time.Second)
		b.wantState(event, webhooks.Delivered, before+1)
		b.wantRecovered(recovery.ID, 1)
	})
}
