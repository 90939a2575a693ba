package webhooks_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// setActive turns the webhook on or off.
func (b *bubble) setActive(webhook webhooks.Webhook, active bool) {
	b.Helper()
	if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Active: new(active)}); err != nil {
		b.Fatal(err)
	}
}

// recoverStep recovers skipped and dead deliveries.
func (b *bubble) recoverStep(webhook webhooks.Webhook) webhooks.Recovery {
	b.Helper()
	recovery, err := b.service.Recover(b.Context(), account, webhook.ID, webhooks.RecoverParams{})
	if err != nil {
		b.Fatal(err)
	}
	return recovery
}

// wantRecovered fails the test unless the recovery is done and has recovered want deliveries.
func (b *bubble) wantRecovered(id string, want int) {
	b.Helper()
	got, err := b.service.Recovery(b.Context(), account, id)
	if err != nil || !got.Done || got.Recovered != want {
		b.Errorf("the recovery is %+v, %v; want %d recovered", got, err, want)
	}
}

// Deliveries skipped while a webhook was inactive are sent when they are recovered, oldest first.
func TestRecoverSkipped(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1}}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		other := b.subscribe("b")
		b.setActive(webhook, false)
		stop := b.start()
		var want []string
		for range 700 {
			want = append(want, b.publish())
			time.Sleep(time.Millisecond)
		}
		b.setActive(webhook, true)
		time.Sleep(time.Hour)
		if n := len(b.hits.of("a")); n != 0 {
			b.Fatalf("%d came though they were skipped", n)
		}
		recovery := b.recoverStep(webhook)
		time.Sleep(time.Minute)
		stop()
		var got []string
		for _, hit := range b.hits.of("a") {
			got = append(got, hit.id)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Errorf("recovered (-want +got):\n%s", diff)
		}
		b.wantRecovered(recovery.ID, 700)
		if n := len(b.hits.of("b")); n != 700 {
			b.Errorf("%s got %d events", other.ID, n)
		}
	})
}

// New events are sent before recovered ones.
func TestRecover_NewEventsGoFirst(t *testing.T) {
	slow := func(w http.ResponseWriter, _ *http.Request) { time.Sleep(100 * time.Millisecond) }
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1}}, slow, func(b *bubble) {
		webhook := b.subscribe("a")
		b.setActive(webhook, false)
		for range 200 {
			b.publish()
		}
		b.setActive(webhook, true)
		b.start()
		b.recoverStep(webhook)
		time.Sleep(5 * time.Second)
		live, at := b.publish(), time.Now()
		time.Sleep(time.Second)
		for _, hit := range b.hits.of("a") {
			if hit.id == live {
				if wait := hit.at.Sub(at); wait > 200*time.Millisecond {
					b.Errorf("it waited for %v", wait)
				}
				return
			}
		}
		b.Error("it has not come")
	})
}

// A recovery that was started while Run was not running is done by the next Run.
func TestRecover_StartedWithoutRun_IsDoneByNextRun(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.setActive(webhook, false)
		for range 300 {
			b.publish()
		}
		time.Sleep(time.Millisecond)
		recovery := b.recoverStep(webhook)
		b.setActive(webhook, true)
		b.service = b.newService(b.store, webhooks.Config{})
		b.start()
		time.Sleep(time.Minute)
		b.wantRecovered(recovery.ID, 300)
		if n := len(b.hits.of("a")); n != 300 {
			b.Errorf("%d came", n)
		}
	})
}

// Redeliver starts the retries over; the attempt numbers continue.
func TestRedeliver(t *testing.T) {
	var works atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if !works.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(time.Hour)
		b.wantState(event, webhooks.Dead, 2)
		redeliver := func() {
			b.Helper()
			if err := b.service.Redeliver(b.Context(), account, webhook.ID, event); err != nil {
				b.Fatal(err)
			}
		}
		redeliver()
		time.Sleep(time.Second)
		b.wantState(event, webhooks.Pending, 3)
		redeliver() // now, not in a minute
		time.Sleep(time.Second)
		b.wantState(event, webhooks.Dead, 4)
		works.Store(true)
		redeliver()
		time.Sleep(time.Second)
		b.wantState(event, webhooks.Delivered, 5)
		redeliver()
		time.Sleep(time.Second)
		b.wantState(event, webhooks.Delivered, 6)
		ids := make(map[string]bool)
		for _, hit := range b.hits.of("a") {
			ids[hit.id] = true
		}
		if len(ids) != 1 {
			b.Errorf("they came as %v", ids)
		}
	})
}

// Each record is kept for the configured time, and no longer.
func TestRetention(t *testing.T) {
	config := webhooks.Config{
		Retry:     webhooks.RetryPolicy{Delays: []time.Duration{}},
		Retention: webhooks.Retention{Payloads: time.Hour, Attempts: 2 * time.Hour, EventIDs: 3 * time.Hour},
	}
	inBubble(t, config, status(http.StatusOK), func(b *bubble) {
		webhook, off := b.subscribe("a"), b.subscribe("b")
		b.start()
		event := b.publish()
		b.setActive(off, false) // possibly before its delivery was sent
		time.Sleep(time.Second)
		state := func(webhook webhooks.Webhook) webhooks.DeliveryState {
			d, err := b.service.Delivery(b.Context(), account, webhook.ID, event)
			if err != nil && !errors.Is(err, apierr.ErrNotFound) {
				b.Error(err)
			}
			return d.State
		}
		if got := state(webhook); got != webhooks.Delivered {
			b.Errorf("it is %s", got)
		}
		time.Sleep(73 * time.Minute) // within the 15 minutes for running attempts
		before := state(off)
		time.Sleep(3 * time.Minute)
		if after := state(off); before != webhooks.Pending && before != webhooks.Delivered || before == webhooks.Pending && after != webhooks.Dead {
			b.Errorf("what was owed was %s, and is %s after an hour and a quarter", before, after)
		}
		if err := b.service.Redeliver(b.Context(), account, webhook.ID, event); !errors.Is(err, apierr.ErrNotFound) {
			b.Errorf("redelivered without its payload: %v", err)
		}
		time.Sleep(45 * time.Minute)
		if got := state(webhook); got != "" {
			b.Errorf("after two hours it is %s", got)
		}
		again := webhooks.Event{ID: event, Account: account, Data: lowBalance}
		publishAgain := func() int {
			if err := b.service.Publish(b.Context(), again); err != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Second)
			return len(b.hits.of("a"))
		}
		if n := publishAgain(); n != 1 {
			b.Errorf("published again within three hours, it came %d times", n)
		}
		time.Sleep(time.Hour)
		if n := publishAgain(); n != 2 {
			b.Errorf("published again after three hours, it came %d times in all", n)
		}
	})
}

// No attempt begins for an event that is older than Retention.Payloads. Attempts that began
// earlier are recorded.
func TestRetention_DueAtItsEdge_ExpiresOrIsRecorded(t *testing.T) {
	config := webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Second}}, Retention: webhooks.Retention{Payloads: time.Hour}}
	for name, test := range map[string]struct {
		due      time.Duration // after the first attempt
		attempts int           // number of attempts made
		state    webhooks.DeliveryState
		last     webhooks.ErrorClass
	}{
		"before":           {59 * time.Minute, 2, webhooks.Delivered, ""},
		"under way":        {time.Hour - 5*time.Second, 2, webhooks.Delivered, ""},
		"after":            {time.Hour + 5*time.Second, 1, webhooks.Dead, webhooks.ClassExpired},
		"just before body": {75*time.Minute - 5*time.Second, 1, webhooks.Dead, webhooks.ClassExpired},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			handler := func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1) == 1 {
					w.Header().Set("Retry-After", strconv.Itoa(int(test.due/time.Second)))
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				time.Sleep(10 * time.Second)
			}
			inBubble(t, config, handler, func(b *bubble) {
				b.subscribe("a")
				b.start()
				event := b.publish()
				time.Sleep(test.due + 15*time.Second)
				if got := len(b.hits.of("a")); got != test.attempts {
					b.Errorf("%d attempts were made, want %d", got, test.attempts)
				}
				check := func() {
					b.Helper()
					b.wantState(event, test.state, 2)
					attempts := b.delivery(event).Attempts
					if got := attempts[len(attempts)-1].Class; got != test.last {
						b.Errorf("the last attempt is of class %q, want %q", got, test.last)
					}
				}
				check()
				time.Sleep(time.Hour)
				check() // Purge has not changed the delivery
			})
		})
	}
}

func TestRetention_Invalid_ReturnsError(t *testing.T) {
	for field, config := range map[string]webhooks.Config{
		"Retention.Payloads": {Retention: webhooks.Retention{Payloads: 80 * time.Hour}},
		"Retention.Attempts": {Retention: webhooks.Retention{Payloads: 100 * time.Hour, Attempts: 99 * time.Hour}},
		"Retention.Audit":    {Retention: webhooks.Retention{Audit: 14*24*time.Hour - 1}},
		"Retention.EventIDs": {Retention: webhooks.Retention{Payloads: -1, EventIDs: 1000 * time.Hour}},
	} {
		_, err := webhooks.New(newLedger(), config)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v; want an error that names %s", config.Retention, err, field)
		}
	}
	for _, good := range []webhooks.Retention{{}, {Payloads: 1000 * 24 * time.Hour}, {Payloads: -1}, {Attempts: -1}, {EventIDs: -1}, {Audit: -1}, {Audit: 14 * 24 * time.Hour}} {
		if _, err := webhooks.New(newLedger(), webhooks.Config{Retention: good}); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

func TestHistory_InvalidInput_ReturnsError(t *testing.T) {
	service := newClocked(t)
	webhook := subscribe(t, service, anyURL)
	_, err := service.ListDeliveries(t.Context(), account, webhook.ID, webhooks.DeliveryQuery{})
	wantInvalid(t, err, "limit")
	_, err = service.ListDeliveries(t.Context(), account, webhook.ID, webhooks.DeliveryQuery{Limit: 1, States: []webhooks.DeliveryState{"lost"}})
	wantInvalid(t, err, "states")
	now := time.Now()
	for field, params := range map[string]webhooks.RecoverParams{
		"states": {States: []webhooks.DeliveryState{"lost"}},
		"from":   {From: now, To: now.Add(-time.Hour)},
		"to":     {To: now.Add(time.Hour)},
	} {
		_, err := service.Recover(t.Context(), account, webhook.ID, params)
		wantInvalid(t, err, field)
	}
	for _, ref := range [][2]string{{"acct_2", webhook.ID}, {account, "wh_none"}} {
		if _, err := service.Recover(t.Context(), ref[0], ref[1], webhooks.RecoverParams{}); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("Recover of %v: %v", ref, err)
		}
		if _, err := service.ListDeliveries(t.Context(), ref[0], ref[1], webhooks.DeliveryQuery{Limit: 1}); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("Deliveries of %v: %v", ref, err)
		}
	}
}

// Recover includes an event that was published just before the call.
func TestRecover_EventJustPublished_IsIncluded(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.setActive(webhook, false)
		b.publish()
		b.setActive(webhook, true)
		recovery := b.recoverStep(webhook)
		b.start()
		time.Sleep(time.Second)
		b.wantRecovered(recovery.ID, 1)
	})
}
