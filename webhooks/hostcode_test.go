package webhooks_test

import (
	"errors"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

// forever returns a function that blocks until the end of the bubble.
func forever(b *bubble) (hang func()) {
	end := make(chan struct{})
	b.Cleanup(func() { close(end) })
	return func() { <-end }
}

// An Observer function that does not return delays Run no longer than the drain timeout, and the
// results are recorded.
func TestObserver_Hangs_RunReturns(t *testing.T) {
	for name, drain := range map[string]time.Duration{"in time": 5 * time.Second, "at once": -1} {
		t.Run(name, func(t *testing.T) {
			var hang atomic.Pointer[func()]
			var told atomic.Int64
			observer := observe.Observer{Attempted: func(observe.Attempt) {
				told.Add(1)
				if h := hang.Load(); h != nil {
					(*h)()
				}
			}}
			inBubble(t, webhooks.Config{Observe: observer, Outbound: webhooks.Outbound{DrainTimeout: drain}}, status(http.StatusOK), func(b *bubble) {
				h := forever(b)
				hang.Store(&h)
				b.subscribe("a")
				stop := b.start()
				event := b.publish()
				time.Sleep(time.Minute)
				begun := time.Now()
				stop()
				if took := time.Since(begun); took > max(drain, 0)+time.Second {
					t.Errorf("Run returned after %v", took)
				}
				b.wantState(event, webhooks.Delivered, 1)
				if lines := b.logs.Lines("level=ERROR", "has not returned"); len(lines) != 1 || told.Load() != 1 {
					t.Errorf("told %d times, logged %q", told.Load(), lines)
				}
			})
		})
	}
}

// An Observer function that ends its goroutine ends nothing else, and this is logged.
func TestObserver_EndsItsGoroutine_IsLogged(t *testing.T) {
	var told atomic.Int64
	observer := observe.Observer{Attempted: func(observe.Attempt) {
		if told.Add(1)%2 == 1 {
			runtime.Goexit()
		}
	}}
	inBubble(t, webhooks.Config{Observe: observer}, status(http.StatusOK), func(b *bubble) {
		for _, name := range []string{"a", "b", "c"} {
			b.subscribe(name)
		}
		b.start()
		for range 4 {
			b.publish()
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if told.Load() != 12 || len(b.logs.Lines("level=ERROR", "ended its goroutine")) != 6 {
			t.Errorf("told %d times, logged\n%s", told.Load(), b.logs)
		}
		b.wantAllDelivered(4 * 3)
	})
}

// wantAllDelivered fails the test unless want deliveries were delivered.
func (b *bubble) wantAllDelivered(want int) {
	b.Helper()
	stats, err := b.service.Stats(b.Context())
	if err != nil || stats.Delivered != uint64(want) || stats.Pending != 0 {
		b.Errorf("%+v, %v; want %d delivered", stats, err, want)
	}
}

// After Close is called, running test events may take up to the drain timeout and are then
// canceled. No new ones begin.
func TestClose_TestEventsInFlight_AreDrained(t *testing.T) {
	for name, test := range map[string]struct {
		drain, takes, want time.Duration
		cut                bool
	}{
		"in time":  {5 * time.Second, 3 * time.Second, 2 * time.Second, false},
		"too late": {2 * time.Second, 10 * time.Second, 2 * time.Second, true},
		"at once":  {-1, 10 * time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, webhooks.Config{Outbound: webhooks.Outbound{DrainTimeout: test.drain}}, sleeping(test.takes), func(b *bubble) {
				webhook := b.subscribe("a")
				sent := make(chan error, 1)
				go func() {
					_, err := b.service.SendTest(b.Context(), account, webhook.ID)
					sent <- err
				}()
				time.Sleep(time.Second)
				begun := time.Now()
				b.service.Close()
				if took := time.Since(begun); took != test.want {
					t.Errorf("Close returned after %v, want %v", took, test.want)
				}
				synctest.Wait()
				select {
				case err := <-sent:
					if errors.Is(err, webhooks.ErrClosed) != test.cut || (err == nil) == test.cut {
						t.Errorf("SendTest: %v", err)
					}
				default:
					t.Error("the test event is under way after Close")
				}
				if _, err := b.service.SendTest(b.Context(), account, webhook.ID); !errors.Is(err, webhooks.ErrClosed) {
					t.Errorf("SendTest after Close: %v", err)
				}
			})
		})
	}
}

// If an Observer function returns only after Run has returned, no other Observer function is
// called: the host may have closed the resources that they use.
func TestObserver_RunReturned_IsNotCalled(t *testing.T) {
	var calls atomic.Int64
	end := make(chan struct{})
	observer := observe.Observer{
		Attempted: func(observe.Attempt) { calls.Add(1); <-end },
		Changed: func(n audit.Entry) {
			if n.Action == audit.WebhookOff {
				calls.Add(1)
			}
		},
	}
	inBubble(t, webhooks.Config{Observe: observer, Outbound: webhooks.Outbound{DrainTimeout: time.Second}}, status(http.StatusGone), func(b *bubble) {
		end = make(chan struct{}) // a channel of this bubble
		b.subscribe("a")
		stop := b.start()
		b.publish()
		time.Sleep(time.Minute)
		stop()
		close(end)
		synctest.Wait()
		if calls.Load() != 1 {
			t.Errorf("%d functions were called", calls.Load())
		}
	})
}
