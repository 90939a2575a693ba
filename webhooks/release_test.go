package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// hold puts a webhook on hold.
func hold(tb testing.TB, store driver.WebhookStore, webhook webhooks.Webhook) {
	tb.Helper()
	_, err := store.UpdateWebhook(tb.Context(), webhook.Account, webhook.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
		w.Held = true
		return nil
	})
	noError(tb, err)
}

// While a webhook is on hold, nothing is sent to it, even on request, and it is not disabled.
// After its release, everything is sent.
func TestHold_SendsNothing(t *testing.T) {
	diary := &diary{}
	config := webhooks.Config{Observe: diary.observer(), Retention: webhooks.Retention{Payloads: 60 * day}}
	broken := true
	inBubble(t, config, func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		before := []string{b.publish(), b.publish()}
		time.Sleep(3 * time.Hour) // both events have failed
		hold(b, b.store, webhook)
		tried := len(b.hits.of("a"))
		later := b.publish()
		if err := b.service.Redeliver(b.Context(), account, webhook.ID, later); err != nil {
			b.Error(err)
		}
		if _, err := b.service.SendTest(b.Context(), account, webhook.ID); !errors.Is(err, webhooks.ErrHeld) {
			b.Errorf("SendTest = %v, want ErrHeld", err)
		}
		b.recoverStep(webhook)
		stats, err := b.service.WebhookStats(b.Context(), account, webhook.ID)
		if err != nil || stats.Pending != 3 || !stats.TurnsOffAt.IsZero() || stats.OldestDue != 0 {
			b.Errorf("WebhookStats = %+v, %v", stats, err)
		}
		if stats, err := b.service.Stats(b.Context()); err != nil || stats.Held != 1 {
			b.Errorf("Stats = %+v, %v", stats, err)
		}
		time.Sleep(10 * day)
		if _, off := diary.told(); len(off) > 0 || len(b.hits.of("a")) != tried {
			b.Errorf("in 10 days on hold it was off %d times, with %d attempts", len(off), len(b.hits.of("a"))-tried)
		}
		broken = false
		released, err := b.service.Release(b.Context(), account, webhook.ID)
		if err != nil || released.Held || !released.FailingSince.IsZero() || !released.WarnedAt.IsZero() {
			b.Errorf("Release = %+v, %v", released, err)
		}
		time.Sleep(time.Minute)
		for _, event := range append(before, later) {
			if got := b.delivery(event); got.State != webhooks.Delivered {
				b.Errorf("a minute after the release %s is %s", event, got.State)
			}
		}
		if _, err := b.service.SendTest(b.Context(), account, webhook.ID); err != nil {
			b.Error(err)
		}
	})
}

// Release does not change a webhook that is not on hold.
func TestRelease_NotOnHold_ChangesNothing(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{})
	webhook := subscribe(t, service, anyURL)
	_, err := store.UpdateWebhook(t.Context(), account, webhook.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
		w.FailingSince = noon
		return nil
	})
	noError(t, err)
	if got, err := service.Release(t.Context(), account, webhook.ID); err != nil || !got.FailingSince.Equal(noon) {
		t.Errorf("Release = %+v, %v", got, err)
	}
	for _, of := range []string{"acct_2", account} {
		if _, err := service.Release(t.Context(), of, "wh_none"); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("Release of none = %v, want ErrNotFound", err)
		}
	}
}

// A ReleaseAll that was interrupted can be continued.
func TestReleaseAll_Interrupted_CanBeContinued(t *testing.T) {
	const many = 300
	store := &cutting{WebhookStore: memory.New()}
	service := newService(t, store, webhooks.Config{})
	for i := range many {
		webhook, err := service.Create(t.Context(), fmt.Sprint("acct_", i), webhooks.CreateParams{URL: anyURL, Events: onBalance})
		noError(t, err)
		hold(t, store, webhook)
	}
	ctx, cancel := context.WithCancel(t.Context())
	store.held = func(calls int) {
		if calls == 3 {
			cancel()
		}
	}
	first, err := service.ReleaseAll(ctx)
	if !errors.Is(err, context.Canceled) || first == 0 || first >= many {
		t.Fatalf("ReleaseAll = %d, %v", first, err)
	}
	left := 0
	for _, err := range service.AllHeld(t.Context()) {
		noError(t, err)
		left++
	}
	if left != many-first {
		t.Fatalf("AllHeld: got %d webhooks, want %d", left, many-first)
	}
	second, err := service.ReleaseAll(t.Context())
	if err != nil || first+second != many {
		t.Errorf("ReleaseAll again = %d, %v; want %d", second, err, many-first)
	}
	if stats, err := service.Stats(t.Context()); err != nil || stats.Held != 0 {
		t.Errorf("Stats = %+v, %v", stats, err)
	}
}

// cutting is a store that reports calls to HeldWebhooks to the test.
type cutting struct {
	driver.WebhookStore
	calls int
	held  func(calls int)
}

func (c *cutting) HeldWebhooks(ctx context.Context, page driver.ListQuery) ([]webhooks.Webhook, error) {
	if c.calls++; c.held != nil {
		c.held(c.calls)
	}
	return c.WebhookStore.HeldWebhooks(ctx, page)
}

// BenchmarkReleaseAll releases 10,000 webhooks with 100 pending deliveries each, in a file. It
// reports the longest time that a Publish takes during the release and, for comparison, before it.
func BenchmarkReleaseAll(b *testing.B) {
	if testing.Short() {
		b.Skip("publishes a million deliveries")
	}
	const accounts, each, events = 100, 100, 100
	for range b.N {
		b.StopTimer()
		store, err := bolt.Open(b.TempDir() + "/storage.db")
		noError(b, err)
		service := newService(b, store, webhooks.Config{MaxPerAccount: each})
		publish := func(account string) time.Duration {
			begun := time.Now()
			noError(b, service.Publish(b.Context(), webhooks.Event{Account: account, Data: lowBalance}))
			return time.Since(begun)
		}
		for i := range accounts {
			inGoroutines(32, each, func(int) {
				webhook, err := service.Create(b.Context(), fmt.Sprint("acct_", i), webhooks.CreateParams{URL: anyURL, Events: onBalance})
				noError(b, err)
				hold(b, store, webhook)
			})
			for range events {
				publish(fmt.Sprint("acct_", i))
			}
		}
		longest := func(until <-chan struct{}) (most time.Duration) {
			for {
				select {
				case <-until:
					return most
				case <-time.After(time.Millisecond):
					most = max(most, publish("other"))
				}
			}
		}
		quiet := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(quiet) })
		before := longest(quiet)
		done := make(chan struct{})
		b.StartTimer()
		go func() {
			defer close(done)
			if released, err := service.ReleaseAll(b.Context()); err != nil || released != accounts*each {
				b.Errorf("ReleaseAll = %d, %v", released, err)
			}
		}()
		during := longest(done)
		b.StopTimer()
		b.ReportMetric(float64(during.Microseconds())/1000, "ms-longest-publish")
		b.ReportMetric(float64(before.Microseconds())/1000, "ms-longest-before")
		noError(b, store.Close())
	}
}
