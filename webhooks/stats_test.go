package webhooks_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	inBubble(t, webhooks.Config{Retries: []time.Duration{}, PerWebhook: 1}, handler, func(b *bubble) {
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
		if _, err := b.service.WebhookStats(b.Context(), "acct_2", slow.ID); !errors.Is(err, webhooks.ErrNotFound) {
			b.Errorf("of another account: %v", err)
		}
	})
}
