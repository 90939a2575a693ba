package webhooks_test

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhook that is deleted during any other operation stays deleted, and nothing more is sent to
// it.
func TestDelete_DuringAnyOperation_IsFinal(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 4}}, sleeping(3*time.Millisecond), func(b *bubble) {
		b.start()
		for i := range 15 {
			webhook := b.subscribe("a")
			event := b.publish()
			var wg sync.WaitGroup
			for _, do := range []func() error{
				func() error {
					_, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{
						URL: new(webhook.URL), Active: new(true), If: func(_, _ webhooks.Webhook) error { return nil },
					})
					return err
				},
				func() error {
					_, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Active: new(false)})
					return err
				},
				func() error {
					_, err := b.service.RotateSecret(b.Context(), account, webhook.ID, webhooks.RotateParams{Grace: time.Hour})
					return err
				},
				func() error {
					_, err := b.service.SendTest(b.Context(), account, webhook.ID)
					return err
				},
				func() error {
					b.publish()
					err := b.service.Redeliver(b.Context(), account, webhook.ID, event)
					if errors.Is(err, apierr.ErrNotFound) {
						_, err = b.service.Get(b.Context(), account, webhook.ID)
					}
					return err
				},
				func() error {
					_, err := b.service.Recover(b.Context(), account, webhook.ID, webhooks.RecoverParams{States: []webhooks.DeliveryState{webhooks.Delivered, webhooks.Skipped}})
					if errors.Is(err, apierr.ErrNotFound) {
						_, err = b.service.Get(b.Context(), account, webhook.ID)
					}
					return err
				},
			} {
				wg.Go(func() {
					for {
						err := do()
						if errors.Is(err, apierr.ErrNotFound) {
							return
						}
						if err != nil && !errors.Is(err, webhooks.ErrTesting) {
							t.Error(err)
							return
						}
						time.Sleep(100 * time.Microsecond)
					}
				})
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			if err := b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // waits for requests that were sent earlier
			before := len(b.hits.of("a"))
			wg.Wait()
			time.Sleep(time.Minute)
			if after := len(b.hits.of("a")); after != before {
				t.Fatalf("round %d: %d requests after Delete", i, after-before)
			}
			if list, err := b.service.List(b.Context(), account, webhooks.WebhookQuery{Limit: 1}); err != nil || len(list.Webhooks) != 0 {
				t.Fatalf("round %d: it is back: %+v, %v", i, list, err)
			}
		}
	})
}

// A 410 response and concurrent updates all take effect.
func TestGone_ConcurrentUpdates_AllTakeEffect(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleepingThen(3*time.Millisecond, http.StatusGone), func(b *bubble) {
		b.start()
		for i := range 20 {
			webhook := b.subscribe("a")
			b.publish()
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			const last = 40
			for amount := range uint64(last + 1) {
				params := webhooks.UpdateParams{Threshold: &amount, If: func(_, _ webhooks.Webhook) error {
					time.Sleep(50 * time.Microsecond) // lets a request reach the receiver
					return nil
				}}
				if _, err := b.service.Update(b.Context(), account, webhook.ID, params); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			got, err := b.service.Get(b.Context(), account, webhook.ID)
			if err != nil || got.Active || got.OffReason != webhooks.OffGone || got.Threshold != last {
				t.Errorf("round %d: %+v, %v", i, got, err)
			}
			if err := b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// If a webhook is disabled and enabled again during an attempt, the attempt still counts: a 410
// disables the webhook.
func TestGone_ReenabledDuringAttempt_Disables(t *testing.T) {
	var gone atomic.Bool
	gone.Store(true)
	handler := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(10 * time.Second)
		if gone.Load() {
			w.WriteHeader(http.StatusGone)
		}
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.publish()
		b.start()
		time.Sleep(time.Second)
		b.setActive(webhook, false)
		b.setActive(webhook, true)
		time.Sleep(time.Minute)
		got, err := b.service.Get(b.Context(), account, webhook.ID)
		if err != nil || got.Active || got.OffReason != webhooks.OffGone {
			t.Errorf("got %+v, %v", got, err)
		}
		gone.Store(false)
		b.setActive(webhook, true)
		event := b.publish()
		time.Sleep(time.Minute)
		b.wantState(event, webhooks.Delivered, 1)
		if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || got.OffReason != "" {
			t.Errorf("turned on again: %+v, %v", got, err)
		}
	})
}
