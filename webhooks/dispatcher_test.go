package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// Events are sent when they are published, not in the next round.
func TestEventsAreDeliveredAtOnce(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		b.subscribe("b")
		before := b.publish()
		b.start()
		for range 20 {
			time.Sleep(17 * time.Minute)
			published := time.Now()
			event := b.publish()
			synctest.Wait()
			for _, delivery := range deliveries(b, b.service, event) {
				if delivery.State != webhooks.Delivered || delivery.Attempts[0].StartedAt.Sub(published) > 0 {
					t.Fatalf("published at %v: %+v", published, delivery)
				}
			}
		}
		if n := len(b.hits.of("a")) + len(b.hits.of("b")); n != 42 {
			t.Errorf("%d requests for 21 events to 2 webhooks", n)
		}
		for _, delivery := range deliveries(b, b.service, before) {
			if delivery.State != webhooks.Delivered {
				t.Errorf("what was published before Run: %+v", delivery)
			}
		}
	})
}

// An idle service rarely calls its store.
func TestIdleService_RarelyCallsStore(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		b.start()
		b.publish()
		time.Sleep(time.Minute)
		before, _ := b.store.called()
		time.Sleep(24 * time.Hour)
		after, _ := b.store.called()
		if n := len(after) - len(before); n > 24 {
			t.Errorf("%d claims in an idle day", n)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	for _, test := range []struct {
		config   webhooks.Config
		webhooks int
		each     int // maximum number of concurrent requests to one webhook
		all      int
	}{
		{webhooks.Config{Concurrency: webhooks.Concurrency{Total: 5, PerWebhook: 2, PerAccount: 5}}, 4, 2, 5},
		{webhooks.Config{Concurrency: webhooks.Concurrency{Total: 5, PerWebhook: 2, PerAccount: 3}}, 4, 2, 3},
		{webhooks.Config{Concurrency: webhooks.Concurrency{Total: 8, PerWebhook: 2}}, 4, 2, 4},
		{webhooks.Config{Concurrency: webhooks.Concurrency{Total: 1, PerWebhook: 1}}, 4, 1, 1},
		{webhooks.Config{Concurrency: webhooks.Concurrency{Total: 100, PerWebhook: 3}}, 2, 3, 6},
		{webhooks.Config{}, 1, 16, 16},
		{webhooks.Config{Concurrency: webhooks.Concurrency{PerAccount: 20}}, 10, 16, 20},
		{webhooks.Config{Concurrency: webhooks.Concurrency{PerAccount: 5}}, 1, 5, 5},
		{webhooks.Config{Concurrency: webhooks.Concurrency{Total: 4}}, 1, 4, 4},
	} {
		t.Run(fmt.Sprintf("%d of %d of %d", test.config.Concurrency.PerWebhook, test.config.Concurrency.PerAccount, test.config.Concurrency.Total), func(t *testing.T) {
			gauge := newGauge()
			handler := func(_ http.ResponseWriter, r *http.Request) {
				defer gauge.enter(r.Host)()
				time.Sleep(90 * time.Millisecond) // short enough not to count as hanging
			}
			inBubble(t, test.config, handler, func(b *bubble) {
				for i := range test.webhooks {
					b.subscribe(fmt.Sprint("w", i))
				}
				const events = 200
				for range events {
					b.publish()
				}
				b.start()
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := len(b.hits.of("")); got != events*test.webhooks {
					t.Errorf("%d requests, want %d", got, events*test.webhooks)
				}
				if gauge.most[""] != test.all {
					t.Errorf("%d at a time, want %d", gauge.most[""], test.all)
				}
				for host, most := range gauge.most {
					if host != "" && most > test.each {
						t.Errorf("%d at a time to %s, want %d", most, host, test.each)
					}
				}
			})
		})
	}
}

// One hanging webhook with a long backlog does not delay events for the others.
func TestHangingWebhook_LongBacklog_DoesNotDelayOthers(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "slow") {
			sleeping(time.Hour)(w, r)
		}
	}
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{Total: 6, PerWebhook: 4}}, handler, func(b *bubble) {
		b.subscribe("slow")
		for range 300 {
			b.publish()
		}
		b.start()
		synctest.Wait()
		for i := range 3 {
			b.subscribe(fmt.Sprint("fast", i))
		}
		for range 50 {
			time.Sleep(200 * time.Millisecond)
			published := time.Now()
			event := b.publish()
			synctest.Wait()
			for _, delivery := range deliveries(b, b.service, event)[1:] { // the slow webhook is the oldest
				if delivery.State != webhooks.Delivered || delivery.Attempts[0].StartedAt.After(published) {
					t.Fatalf("%+v is not delivered at once", delivery)
				}
			}
		}
	})
}

// Webhooks take turns: the webhook with the shorter backlog does not wait for the longer backlog.
func TestWebhooksTakeTurns(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{Total: 4, PerWebhook: 4}}, sleeping(time.Second), func(b *bubble) {
		b.subscribe("long")
		for range 100 {
			b.publish()
		}
		b.subscribe("short")
		last := b.publish()
		b.start()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if got := len(b.hits.of("short")); got != 1 {
			t.Errorf("after 2.5 s the second webhook got %d events; %v", got, deliveries(b, b.service, last))
		}
	})
}

func TestRun_AlreadyRunning_ReturnsErrRunning(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		stop := b.start()
		synctest.Wait()
		for range 3 {
			if err := b.service.Run(b.Context()); !errors.Is(err, webhooks.ErrRunning) {
				t.Errorf("a second Run returned %v", err)
			}
		}
		stop()
		// After Run has returned, it can be called again, any number of times.
		b.subscribe("a")
		for range 3 {
			event := b.publish()
			stop := b.start()
			synctest.Wait()
			b.wantState(event, webhooks.Delivered, 1)
			stop()
		}
	})
}

func TestRun_ContextDone_AttemptsNothing(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		event := b.publish()
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := b.service.Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
		b.wantState(event, webhooks.Pending, 0)
	})
}

// A Run whose context has a deadline ends like any other.
func TestRun_ContextHasDeadline_EndsNormally(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		event := b.publish()
		if err := b.service.Run(ctx); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("Run returned %v after %v", err, time.Since(begun))
		}
		b.wantState(event, webhooks.Delivered, 1)
		if lines := b.logs.Lines("level=ERROR"); len(lines) > 0 {
			t.Errorf("logged: %s", lines)
		}
	})
}
