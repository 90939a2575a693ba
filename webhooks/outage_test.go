package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// beginOutage runs the service with one webhook, and then makes the store's claims fail. The
// returned function returns the times of the claims since then.
func (b *bubble) beginOutage() (claims func() []time.Time) {
	b.subscribe("a")
	b.start()
	synctest.Wait()
	b.store.fail(errOutage, nil)
	before, _ := b.store.called()
	return func() []time.Time {
		all, _ := b.store.called()
		return all[len(before):]
	}
}

// While claims fail, they are repeated with growing pauses. Once they succeed, everything resumes.
func TestStoreOutage_ClaimsFail_AreRetriedWithGrowingPauses(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		claimsSince := b.beginOutage()
		event := b.publish()
		time.Sleep(10 * time.Minute)
		claims := claimsSince()
		for i := range claims[1:] {
			if pause := claims[i+1].Sub(claims[i]); pause < 50*time.Millisecond || pause > 5*time.Second {
				t.Errorf("it was asked again after %v", pause)
			}
		}
		if n := len(claims); n < 100 || n > 150 {
			t.Errorf("%d claims in an outage of 10 minutes", n)
		}
		if lines := b.logs.Lines("level=ERROR", errOutage.Error()); len(lines) != len(claims) {
			t.Errorf("%d failures logged of %d", len(lines), len(claims))
		}
		b.store.fail(nil, nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.wantState(event, webhooks.Delivered, 1)
	})
}

// A halted store is reported in one log line, and in the statistics.
func TestStoreHalts_IsLoggedOnce(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.beginOutage()
		b.store.halts(errOutage)
		b.publish()
		time.Sleep(time.Hour)
		if lines := b.logs.Lines("level=ERROR"); len(lines) != 1 || !strings.Contains(lines[0], "restart") || !strings.Contains(lines[0], errOutage.Error()) {
			t.Errorf("%d lines in an hour: %q", len(lines), lines)
		}
		if stats, err := b.service.Stats(b.Context()); err != nil || !errors.Is(stats.Halted, errOutage) {
			t.Errorf("Stats = %+v, %v", stats, err)
		}
		b.store.halts(nil)
		if stats, err := b.service.Stats(b.Context()); err != nil || stats.Halted != nil {
			t.Errorf("Stats = %+v, %v", stats, err)
		}
	})
}

// Publishing during an outage does not cause more claims.
func TestStoreOutage_Publishing_CausesNoClaims(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		claimsSince := b.beginOutage()
		for range 1000 {
			b.publish()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(claimsSince()); n > 50 {
			t.Errorf("%d claims in an outage of 10 seconds", n)
		}
	})
}

// The store makes deliveries due, but returns an error. The service must find the deliveries at
// once, not by chance an hour later. Repeating the call may not help, because there may be nothing
// left to do.
func TestStoreOutage_ChangeMadeDespiteError_IsFound(t *testing.T) {
	for name, do := range map[string]func(*bubble, webhooks.Webhook, string) error{
		"Publish": func(b *bubble, _ webhooks.Webhook, _ string) error {
			return b.service.Publish(b.Context(), webhooks.Event{Account: account, Data: lowBalance})
		},
		"ReportBalance": func(b *bubble, _ webhooks.Webhook, _ string) error {
			return b.reports().ReportBalance(b.Context(), account, 1)
		},
		"ReportFiles": func(b *bubble, _ webhooks.Webhook, _ string) error {
			return b.reports().ReportFiles(b.Context(), account, []alerts.ExpiringFile{{ID: "file", ExpiresAt: time.Now().Add(time.Hour)}})
		},
		"Redeliver": func(b *bubble, w webhooks.Webhook, event string) error {
			return b.service.Redeliver(b.Context(), account, w.ID, event)
		},
		"Recover": func(b *bubble, w webhooks.Webhook, _ string) error {
			delivered := webhooks.RecoverParams{States: []webhooks.DeliveryState{webhooks.Delivered}}
			if _, err := b.service.Recover(b.Context(), account, w.ID, delivered); err != nil {
				return err
			}
			return errOutage // like the error that the maintainer gets
		},
		"Update": func(b *bubble, w webhooks.Webhook, event string) error {
			off := webhooks.UpdateParams{Active: new(false)}
			if _, err := b.service.Update(b.Context(), account, w.ID, off); !errors.Is(err, errOutage) {
				return err
			}
			if err := b.service.Redeliver(b.Context(), account, w.ID, event); !errors.Is(err, errOutage) {
				return err
			}
			synctest.Wait()
			_, err := b.service.Update(b.Context(), account, w.ID, webhooks.UpdateParams{Active: new(true)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
				webhook, err := b.service.Create(b.Context(), account, webhooks.CreateParams{
					URL: "https://a.example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeFilesExpiring}, Threshold: 2,
				})
				noError(b, err)
				b.start()
				event := b.publish()
				synctest.Wait()
				b.store.doubts(errOutage)
				if err := do(b, webhook, event); !errors.Is(err, errOutage) {
					t.Fatalf("%v, want that the store failed", err)
				}
				time.Sleep(time.Second)
				if n := len(b.hits.of("a")); n != 2 {
					t.Errorf("%d requests, want the one before and one more", n)
				}
			})
		})
	}
}

// Results of attempts are recorded once the store is available again; the receiver gets the event
// once.
func TestStoreOutage_SettlementsFailBriefly_SendsOnce(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		b.store.fail(nil, errOutage)
		b.start()
		event := b.publish()
		time.Sleep(30 * time.Second)
		b.wantState(event, webhooks.Pending, 0)
		b.store.fail(nil, nil)
		time.Sleep(time.Hour)
		b.wantState(event, webhooks.Delivered, 1)
		if n := len(b.hits.of("a")); n != 1 {
			t.Errorf("%d requests", n)
		}
		if _, settles := b.store.called(); len(settles) > 20 {
			t.Errorf("%d attempts to settle in 30 seconds", len(settles))
		}
	})
}

// Results are also recorded after an outage of an hour. Failures of the store do not count against
// a receiver. During the outage, nothing is attempted except occasional trials.
func TestStoreOutage_SettlementsFailForAnHour_SendsOnce(t *testing.T) {
	// Even an error that looks like a canceled context does not cause polling.
	outage := fmt.Errorf("%w: %w", errOutage, context.Canceled)
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 2}}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		b.store.fail(nil, outage)
		b.start()
		var events []string
		for range 20 {
			events = append(events, b.publish())
		}
		time.Sleep(time.Hour)
		b.store.fail(nil, nil)
		time.Sleep(time.Hour)
		for _, event := range events {
			if got := b.delivery(event); got.State != webhooks.Delivered || len(got.Attempts) != 1 {
				t.Errorf("%+v", got)
			}
		}
		if n := len(b.hits.of("a")); n != 20 {
			t.Errorf("%d requests for 20 events", n)
		}
		if _, settles := b.store.called(); len(settles) > 800 {
			t.Errorf("%d attempts to settle in an outage of an hour", len(settles))
		}
	})
}

// A settlement that the store always refuses does not delay others, regardless of the batch that
// it is in.
func TestSettle_OneOfManyRefused_DoesNotDelayOthers(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		for i := range 100 {
			b.subscribe(fmt.Sprint("w", i))
		}
		event := b.publish()
		list := deliveries(b, b.service, event)
		poison := map[string]bool{list[30].WebhookID: true, list[75].WebhookID: true}
		b.store.refuses(func(r *driver.AttemptResult) bool { return poison[r.WebhookID] })
		b.start()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, delivery := range deliveries(b, b.service, event) {
			if (delivery.State == webhooks.Delivered) == poison[delivery.WebhookID] {
				t.Errorf("%+v", delivery)
			}
		}
		if n := b.store.refusals(); n > 60 {
			t.Errorf("%d calls were refused", n)
		}
		// Later events are as fast as before, unless they share a batch with a retry of the refused
		// settlement.
		late := 0
		for range 80 {
			time.Sleep(2 * time.Second)
			published := time.Now()
			event := b.publish()
			time.Sleep(10 * time.Millisecond) // many results are recorded together
			for _, delivery := range deliveries(b, b.service, event) {
				if !poison[delivery.WebhookID] && (delivery.State != webhooks.Delivered || !delivery.Attempts[0].StartedAt.Equal(published)) {
					late++
				}
			}
		}
		if late > 80*100/20 {
			t.Errorf("%d of %d deliveries came late", late, 80*100)
		}
		b.store.refuses(nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, delivery := range deliveries(b, b.service, event) {
			if delivery.State != webhooks.Delivered || len(delivery.Attempts) != 1 {
				t.Errorf("%+v", delivery)
			}
		}
	})
}

// A refused settlement does not delay later ones even if it is alone in its batch.
func TestSettle_SingleOneRefused_DoesNotDelayOthers(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1}}, status(http.StatusOK), func(b *bubble) {
		poison := b.subscribe("a").ID
		b.store.refuses(func(r *driver.AttemptResult) bool { return r.WebhookID == poison })
		b.start()
		b.publish()
		time.Sleep(10 * time.Second)
		b.subscribe("b")
		first := b.publish()
		time.Sleep(2 * time.Minute) // until the refusal is isolated
		for range 20 {
			time.Sleep(2 * time.Second)
			b.publish()
		}
		synctest.Wait()
		if n := len(b.hits.of("b")); n < 20 {
			t.Errorf("the other webhook got %d of 21 events", n)
		}
		if n := len(b.hits.of("a")); n > 10 {
			t.Errorf("%d requests to the webhook whose settlements are refused", n)
		}
		if got := deliveries(b, b.service, first)[1]; got.State != webhooks.Delivered {
			t.Errorf("%+v", got)
		}
	})
}

// hung is a store whose calls hang until their context ends.
type hung struct{ driver.WebhookStore }

func (hung) Load(ctx context.Context, _ []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) Settle(ctx context.Context, _ []driver.AttemptResult, _ []driver.HealthChange) (driver.Settled, error) {
	<-ctx.Done()
	return driver.Settled{}, ctx.Err()
}

// A Run that ends during a claim does not log a failure.
func TestRun_EndsDuringClaim_LogsNoFailure(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		logs := &testlog.Book{}
		service := newService(t, hung{newFlaky().Store}, webhooks.Config{Logger: logs.Logger()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := service.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		if lines := logs.Lines("level=ERROR"); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A store that hangs prevents neither Run nor Delete from returning.
func TestStoreHangs_RunAndDeleteReturn(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		memory := newFlaky().Store
		service := newService(t, hung{memory}, webhooks.Config{Outbound: webhooks.Outbound{DrainTimeout: time.Second}})
		webhook := subscribe(t, service, anyURL)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- service.Run(ctx) }()
		synctest.Wait()

		deleted := make(chan error, 1)
		go func() { deleted <- service.Delete(t.Context(), account, webhook.ID, webhooks.DeleteParams{}) }()
		time.Sleep(time.Minute)
		select {
		case err := <-deleted:
			if err != nil {
				t.Errorf("Delete = %v", err)
			}
		default:
			t.Error("Delete hangs with the store")
		}
		cancel()
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run = %v", err)
			}
		default:
			t.Error("Run hangs with the store")
		}
	})
}

// A store that stays broken does not prevent Run from returning.
func TestStoreOutage_Draining_RunReturns(t *testing.T) {
	inBubble(t, webhooks.Config{Outbound: webhooks.Outbound{DrainTimeout: 3 * time.Second}}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		b.store.fail(nil, errOutage)
		stop := b.start()
		event := b.publish()
		time.Sleep(time.Second)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("draining took %v", took)
		}
		b.store.fail(nil, nil)
		b.start()
		time.Sleep(time.Hour)
		if got := b.delivery(event); got.State != webhooks.Delivered || len(got.Attempts) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// A panic anywhere in an attempt counts as one failed attempt of one delivery.
func TestAttempt_Panics_CountsAsFailed(t *testing.T) {
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		poisoned := b.publish()
		b.store.spoil = func(l *driver.LoadedDelivery) {
			if l.Event.ID == poisoned {
				l.Event.ID = "SENTINEL.1" // signing panics at this ID
			}
		}
		b.start()
		others := []string{b.publish(), b.publish()}
		time.Sleep(time.Hour)
		b.wantState(poisoned, webhooks.Dead, 2)
		for _, attempt := range b.delivery(poisoned).Attempts {
			if attempt.Error != "panic" {
				t.Errorf("recorded %+v", attempt)
			}
		}
		for _, event := range others {
			b.wantState(event, webhooks.Delivered, 1)
		}
	})
}

// An unreadable record counts as a failed attempt, and is retried because it may become readable
// again. In the end the delivery is dead. It delays no other delivery.
func TestAttempt_UnreadableRecord_CountsAsFailed(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		poisoned, next := b.publish(), b.publish()
		b.store.spoil = func(l *driver.LoadedDelivery) {
			if l.Event.ID == poisoned {
				*l = driver.LoadedDelivery{State: driver.Ready, Webhook: &webhooks.Webhook{ID: l.Webhook.ID}, Attempts: l.Attempts, Err: errOutage}
			}
		}
		b.start()
		synctest.Wait()
		b.wantState(poisoned, webhooks.Pending, 1)
		b.wantState(next, webhooks.Delivered, 1)
		if got := b.delivery(poisoned).Attempts[0]; got.Error != "the stored record cannot be read" || got.Status != 0 || !got.StartedAt.Equal(time.Now()) {
			t.Errorf("recorded %+v", got)
		}
		time.Sleep(2 * time.Minute)
		b.wantState(poisoned, webhooks.Dead, 2)
		if n := len(b.hits.of("a")); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// If only another process can read a record, because of its version or key, the delivery is
// released without an attempt. That is logged once.
func TestDispatcher_RecordFromNewerVersion_IsReleased(t *testing.T) {
	for reason, err := range map[string]error{
		"version": fmt.Errorf("a record: %w", errors.ErrUnsupported),
		"key":     fmt.Errorf("a record: %w", signing.ErrSealed),
	} {
		t.Run(reason, func(t *testing.T) {
			inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}, status(http.StatusOK), func(b *bubble) {
				b.subscribe("a")
				newer, next := b.publish(), b.publish()
				var reads atomic.Int64
				b.store.spoil = func(l *driver.LoadedDelivery) {
					if l.Event.ID == newer && reads.Add(1) < 4 {
						*l = driver.LoadedDelivery{State: driver.Ready, Webhook: &webhooks.Webhook{ID: l.Webhook.ID}, Attempts: l.Attempts, Err: err}
					}
				}
				b.start()
				time.Sleep(2*time.Minute + time.Second)
				b.wantState(newer, webhooks.Pending, 0)
				b.wantState(next, webhooks.Delivered, 1)
				if n := reads.Load(); n != 3 {
					t.Errorf("it was claimed %d times within two minutes, want once a minute", n)
				}
				time.Sleep(time.Minute)
				b.wantState(newer, webhooks.Delivered, 1)
				if got := b.delivery(newer).Attempts[0].Number; got != 1 {
					t.Errorf("it was delivered by attempt %d, want 1", got)
				}
				if n := strings.Count(b.logs.String(), "cannot read a stored record"); n < 2 || n > 3 {
					t.Errorf("logged %d times within three minutes, want once a minute:\n%s", n, b.logs.String())
				}
			})
		})
	}
}

// Attempts for a webhook without a secret, or with an invalid URL, fail with a visible error.
func TestUnusableWebhook_FailsVisibly(t *testing.T) {
	for reason, spoil := range map[string]func(*driver.LoadedDelivery){
		"no usable signing secret": func(l *driver.LoadedDelivery) { l.Webhook.Secret = webhooks.Webhook{}.Secret },
		"no usable URL":            func(l *driver.LoadedDelivery) { l.Webhook.URL = "https://SENTINEL\x00" },
	} {
		t.Run(reason, func(t *testing.T) {
			inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}, status(http.StatusOK), func(b *bubble) {
				b.subscribe("a")
				b.store.spoil = spoil
				b.start()
				event := b.publish()
				synctest.Wait()
				b.wantState(event, webhooks.Dead, 1)
				if got := b.delivery(event).Attempts[0].Error; got != reason {
					t.Errorf("recorded %q", got)
				}
				if strings.Contains(b.logs.String(), "SENTINEL") {
					t.Errorf("logged:\n%s", b.logs)
				}
			})
		})
	}
}
