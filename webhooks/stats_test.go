package webhooks_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

func TestStats(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.Host {
		case "bad.example.com":
			w.WriteHeader(http.StatusBadRequest)
		case "slow.example.com":
			time.Sleep(10 * time.Second)
		}
	}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}, Concurrency: webhooks.Concurrency{PerWebhook: 1}}, handler, func(b *bubble) {
		b.subscribe("good")
		b.subscribe("bad")
		slow, off := b.subscribe("slow"), b.subscribe("off")
		b.publish()
		time.Sleep(time.Minute)
		b.publish()
		b.setActive(off, false)
		want := func(want webhooks.Stats) {
			b.Helper()
			got, err := b.service.Stats(b.Context())
			got.IdleConns, got.MaxIdleConns = 0, 0
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				b.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
		want(webhooks.Stats{Pending: 8, OldestDue: time.Minute})
		b.start()
		time.Sleep(5 * time.Second)
		want(webhooks.Stats{Pending: 4, OldestDue: 5 * time.Second, InFlight: 1, Delivered: 2, Failed: 2, Dead: 2})
		ofSlow, err := b.service.WebhookStats(b.Context(), account, slow.ID)
		ignored := cmpopts.IgnoreFields(webhooks.WebhookStats{}, "LimiterState")
		if diff := cmp.Diff(webhooks.WebhookStats{Pending: 2, OldestDue: 5 * time.Second}, ofSlow, ignored); err != nil || diff != "" || ofSlow.LimiterState.InFlight != 1 {
			b.Errorf("%v %+v (-want +got):\n%s", err, ofSlow, diff)
		}
		time.Sleep(time.Minute)
		want(webhooks.Stats{Pending: 2, Delivered: 4, Failed: 2, Dead: 2})
		if _, err := b.service.WebhookStats(b.Context(), "acct_2", slow.ID); !errors.Is(err, apierr.ErrNotFound) {
			b.Errorf("of another account: %v", err)
		}
	})
}

// The limit on kept connections is logged when Run starts, and is part of Stats.
func TestRun_Started_LogsConnectionLimit(t *testing.T) {
	inBubble(t, webhooks.Config{Outbound: webhooks.Outbound{MaxIdleConns: 2}}, status(http.StatusOK), func(b *bubble) {
		for _, name := range []string{"a", "b", "c"} {
			b.subscribe(name)
		}
		b.start()
		b.publish()
		time.Sleep(time.Minute)
		if got, err := b.service.Stats(b.Context()); err != nil || got.IdleConns != 2 || got.MaxIdleConns != 2 {
			t.Errorf("%d connections are kept of at most %d, %v; want 2 of 2", got.IdleConns, got.MaxIdleConns, err)
		}
		if lines := b.logs.Lines("level=INFO", "max_idle_conns=2"); len(lines) != 1 {
			t.Errorf("logged %q, want one line with max_idle_conns=2", lines)
		}
	})
}
