package webhooks_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// Now returns the time of a clock that differs from this node's clock.
func (f *flaky) Now(ctx context.Context) (time.Time, error) {
	now, err := f.Store.Now(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Round(0).Add(f.ahead), err
}

func (f *flaky) isAhead(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = by
}

// Retention uses the store's clock, not this node's clock.
func TestRetention_UsesStoreClock(t *testing.T) {
	config := webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}, Retention: webhooks.Retention{Payloads: time.Hour}}
	inBubble(t, config, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.store.isAhead(-30 * time.Minute)
		b.start()
		event := b.publish()
		for range 95 { // the event's age by the store's clock stays below 75 minutes
			time.Sleep(time.Minute)
			if err := b.service.Redeliver(b.Context(), account, webhook.ID, event); err != nil {
				b.Fatalf("redelivered: %v", err)
			}
		}
		time.Sleep(12 * time.Minute)
		if err := b.service.Redeliver(b.Context(), account, webhook.ID, event); err == nil {
			b.Error("its body is there after more than an hour")
		}
	})
}

// If this node's clock differs from the store's, a warning is logged once an hour.
func TestClock_DiffersFromStore_IsLoggedHourly(t *testing.T) {
	for by, text := range map[time.Duration]string{
		5 * time.Second: "", -5 * time.Second: "",
		6 * time.Second: "is behind the store's", -6 * time.Second: "is ahead of the store's",
	} {
		inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
			b.store.isAhead(by)
			b.start()
			time.Sleep(90 * time.Minute)
			said := b.logs.Lines("level=WARN", "clock")
			if text == "" && len(said) > 0 || text != "" && len(b.logs.Lines(text, "by=6s")) != 2 {
				b.Errorf("a store's clock that is %v ahead: said %q in 90 minutes", by, said)
			}
		})
	}
}
