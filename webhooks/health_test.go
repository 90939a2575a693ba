package webhooks_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func (b *bubble) health() webhooks.Health {
	b.Helper()
	return b.service.Health(b.Context())
}

// wantWell fails the test unless Health reports no problem, even while deliveries are pending.
func (b *bubble) wantWell(h webhooks.Health) {
	b.Helper()
	if h.Run != webhooks.RunUnderWay || time.Since(h.LastRound) > 30*time.Second || h.ReadError != nil || h.WriteError != nil || h.Halted != nil {
		b.Errorf("it is not well at %v: %+v", time.Now(), h)
	}
}

// Health reports the state of Run, and since when.
func TestHealth_ReportsRun(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleeping(time.Second), func(b *bubble) {
		want := func(state webhooks.RunState, since time.Time) {
			b.Helper()
			synctest.Wait()
			if h := b.health(); h.Run != state || !h.RunSince.Equal(since) {
				b.Errorf("Run is %s since %v, want %s since %v", h.Run, h.RunSince, state, since)
			}
		}
		b.subscribe("a")
		made := time.Now()
		time.Sleep(time.Hour)
		want(webhooks.RunNotStarted, made)
		if h := b.health(); !h.LastRound.IsZero() || !h.LastClaim.IsZero() || !h.LastAttempt.IsZero() {
			b.Errorf("before Run: %+v", h)
		}
		for range 2 {
			stop := b.start()
			began := time.Now()
			want(webhooks.RunUnderWay, began)
			b.publish()
			synctest.Wait()
			if h := b.health(); !h.LastAttempt.Equal(began) {
				b.Errorf("the last attempt began at %v, want %v", h.LastAttempt, began)
			}
			time.Sleep(400 * time.Millisecond)
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				stop()
			}()
			want(webhooks.RunDraining, time.Now())
			<-stopped
			want(webhooks.RunEnded, began.Add(time.Second))
		}
	})
}

// An idle service is healthy, and so is a service whose attempts take long.
func TestHealth_IdleOrSlowAttempts_IsHealthy(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{Total: 1}, Outbound: webhooks.Outbound{Timeout: 10 * time.Minute}}, sleeping(5*time.Minute), func(b *bubble) {
		b.subscribe("a")
		b.start()
		for range 3 {
			b.publish()
		}
		for range 100 {
			time.Sleep(17 * time.Second)
			b.wantWell(b.health())
		}
		time.Sleep(24 * time.Hour)
		b.wantWell(b.health())
	})
}

// If the store's claims hang and ignore their context, the run loop stops. Health reports that,
// and how long deliveries have waited.
func TestHealth_ClaimsHang_IsReported(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &hanging{WebhookStore: memory.New(), until: make(chan struct{})}
		b := &bubble{T: t, store: newFlaky(), logs: &testlog.Book{}}
		b.dial = b.serve(status(http.StatusOK))
		b.service = b.newService(store, webhooks.Config{})
		b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(time.Second)
		b.wantState(event, webhooks.Delivered, 1)
		store.hangs.Store(true)
		b.publish()
		stuck := time.Now()
		time.Sleep(10 * time.Minute)
		h := b.health()
		if h.Run != webhooks.RunUnderWay || h.LastRound.After(stuck) || h.LastClaim.After(stuck) || h.LastAttempt.After(stuck) {
			b.Errorf("10 minutes after %v: %+v", stuck, h)
		}
		if h.OldestDue != 10*time.Minute {
			b.Errorf("OldestDue = %v, want 10m", h.OldestDue)
		}
		store.hangs.Store(false)
		close(store.until)
		time.Sleep(2 * time.Second)
		b.wantWell(b.health())
		if h := b.health(); h.OldestDue != 0 {
			b.Errorf("OldestDue = %v once it goes on", h.OldestDue)
		}
	})
}

// hanging is a store that does not return from some calls, even when their context ends.
type hanging struct {
	driver.WebhookStore
	hangs, mute atomic.Bool
	asked       atomic.Int64
	until       chan struct{}
}

func (s *hanging) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	if s.hangs.Load() {
		<-s.until
	}
	return s.WebhookStore.Load(ctx, refs)
}

func (s *hanging) Ping(ctx context.Context) error {
	s.asked.Add(1)
	if s.mute.Load() {
		<-s.until
	}
	return s.WebhookStore.Ping(ctx)
}

// A store that does not answer is reported within a second. Any number of concurrent calls of
// Health share one query.
func TestHealth_StoreHangs_IsReportedWithinASecond(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &hanging{WebhookStore: memory.New(), until: make(chan struct{})}
		store.mute.Store(true)
		service := newService(t, store, webhooks.Config{})
		begun := time.Now()
		for range 3 {
			var calls sync.WaitGroup
			for range 1000 {
				calls.Go(func() {
					if h := service.Health(context.Background()); h.ReadError == nil || h.OldestDue != 0 {
						t.Errorf("%+v", h)
					}
				})
			}
			calls.Wait()
			time.Sleep(time.Second)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("3 rounds took %v", took)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if h := service.Health(ended); h.ReadError == nil {
			t.Error("no error although the context is over")
		}
		if n := store.asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		store.mute.Store(false)
		close(store.until)
		synctest.Wait()
		if h := service.Health(context.Background()); h.ReadError != nil {
			t.Errorf("once it answers: %v", h.ReadError)
		}
	})
}

// The store is queried once a second, however often Health is called.
func TestHealth_ManyCalls_QueryOnceASecond(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &hanging{WebhookStore: memory.New()}
		service := newService(t, store, webhooks.Config{})
		for range 10_000 {
			service.Health(t.Context())
			time.Sleep(time.Millisecond)
		}
		if n := store.asked.Load(); n != 10 {
			t.Errorf("it was asked %d times in 10 s", n)
		}
	})
}

// A failure to write is reported until a write succeeds.
func TestHealth_WriteFails_IsReportedUntilSuccess(t *testing.T) {
	for name, test := range map[string]struct{ claim, settle error }{"claims": {errOutage, nil}, "settlements": {nil, errOutage}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
				b.subscribe("a")
				b.start()
				synctest.Wait()
				b.wantWell(b.health())
				b.store.fail(test.claim, test.settle)
				event := b.publish()
				for range 20 {
					time.Sleep(30 * time.Second)
					h := b.health()
					if !errors.Is(h.WriteError, errOutage) || !errors.Is(h.LastError, errOutage) || time.Since(h.LastErrorAt) > time.Minute {
						b.Fatalf("%+v", h)
					}
					if h.WriteError = nil; true {
						b.wantWell(h) // and Health reports no other problem
					}
				}
				b.store.fail(nil, nil)
				time.Sleep(10 * time.Second)
				b.wantWell(b.health())
				b.wantState(event, webhooks.Delivered, 1)
				if h := b.health(); !errors.Is(h.LastError, errOutage) {
					b.Errorf("LastError = %v once it is over", h.LastError)
				}
			})
		})
	}
}

// If recording results takes too long, Health reports a failure to write.
func TestHealth_WritesHang_IsReported(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &slowSettler{WebhookStore: memory.New(), until: make(chan struct{})}
		b := &bubble{T: t, store: newFlaky(), logs: &testlog.Book{}}
		b.dial = b.serve(status(http.StatusOK))
		b.service = b.newService(store, webhooks.Config{})
		b.subscribe("a")
		b.start()
		b.publish()
		time.Sleep(5 * time.Second)
		b.wantWell(b.health())
		time.Sleep(time.Minute)
		if h := b.health(); h.WriteError == nil || !strings.Contains(h.WriteError.Error(), "1m5s") {
			b.Errorf("%+v", h)
		}
		close(store.until)
		time.Sleep(time.Second)
		b.wantWell(b.health())
	})
}

type slowSettler struct {
	driver.WebhookStore
	until chan struct{}
}

func (s *slowSettler) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	<-s.until
	return s.WebhookStore.Settle(ctx, results, health)
}

// If the store has halted, Health reports that and the cause.
func TestHealth_StoreHalts_ReportsCause(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.beginOutage()
		b.store.halts(errOutage)
		time.Sleep(time.Minute)
		if h := b.health(); !errors.Is(h.Halted, errOutage) || h.ReadError != nil {
			b.Errorf("%+v", h)
		}
	})
}

// A failed Publish counts as a failure to write, except if the request is invalid or the caller
// has canceled it. Without Run, it counts for a minute.
func TestHealth_PublishFails_IsReported(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		publish := func(ctx context.Context, data webhooks.Data) {
			b.Helper()
			if err := b.service.Publish(ctx, webhooks.Event{Account: account, Data: data}); err == nil {
				b.Error("it was published")
			}
		}
		gone, cancel := context.WithCancel(b.Context())
		cancel()
		b.store.doubts(errOutage)
		publish(gone, lowBalance)
		publish(b.Context(), nil)
		if h := b.health(); h.WriteError != nil || h.LastError != nil {
			b.Errorf("%+v", h)
		}
		publish(b.Context(), lowBalance)
		if h := b.health(); !errors.Is(h.WriteError, errOutage) || !errors.Is(h.LastError, errOutage) {
			b.Errorf("%+v", h)
		}
		time.Sleep(time.Minute)
		if h := b.health(); h.WriteError != nil {
			b.Errorf("a minute later: %+v", h)
		}
	})
}

// Receivers that are down, slow or hanging do not affect Health, and neither do their backlogs.
func TestHealth_ReceiversFail_IsUnaffected(t *testing.T) {
	const webhookCount = 500
	config := webhooks.Config{Concurrency: webhooks.Concurrency{Total: 64, PerAccount: 64}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute, time.Hour}}}
	for name, handler := range map[string]http.HandlerFunc{
		"down": status(http.StatusServiceUnavailable), "hanging": sleeping(time.Hour), "slow": sleeping(12 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Bool
			inBubble(t, config, func(w http.ResponseWriter, r *http.Request) {
				if bad.Load() {
					handler(w, r)
				}
			}, func(b *bubble) {
				for i := range webhookCount {
					b.subscribe("a" + string(rune('a'+i%26)) + "x")
				}
				b.start()
				b.publish() // makes the webhooks proven
				time.Sleep(time.Minute)
				bad.Store(true)
				longest := time.Duration(0)
				for range 60 {
					b.publish()
					time.Sleep(10 * time.Second)
					h := b.health()
					b.wantWell(h)
					longest = max(longest, h.OldestDue)
					if time.Since(h.LastAttempt) > time.Minute {
						b.Errorf("the last attempt began %v ago", time.Since(h.LastAttempt))
					}
				}
				if longest > 3*time.Minute {
					b.Errorf("OldestDue was %v", longest)
				}
			})
		})
	}
}
