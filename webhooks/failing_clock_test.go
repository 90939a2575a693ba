package webhooks_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

// A clock that is set ahead disables no webhook: the jump does not count until it has lasted for
// a day, and the host is warned first.
func TestFailing_ClockSetAhead_DisablesNothing(t *testing.T) {
	for name, before := range map[string]time.Duration{"warned": 3 * day, "not warned yet": day} {
		t.Run(name, func(t *testing.T) {
			var clock testclock.Clock
			diary := &diary{}
			config := webhooks.Config{
				Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{}},
				Now: clock.Now,
			}
			inBubble(t, config, status(http.StatusInternalServerError), func(b *bubble) {
				webhook := b.subscribe("a")
				b.start()
				b.publishMany(2)
				time.Sleep(before)
				failing, _ := diary.told()
				warned := len(failing)
				clock.Add(31 * day)
				time.Sleep(20 * time.Hour)
				failing, off := diary.told()
				if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || len(off) > 0 || len(failing) != warned {
					t.Errorf("20 hours after the clock was set: warned %d times, before %d, off %d times: %+v, %v", len(failing), warned, len(off), got, err)
				}
				clock.Add(-31 * day) // after the clock is corrected, the jump has no effect
				time.Sleep(5*day - 20*time.Hour - before - time.Hour)
				if _, off := diary.told(); len(off) > 0 {
					t.Errorf("off after %v", 5*day-time.Hour)
				}
				time.Sleep(2 * time.Hour)
				if _, off := diary.told(); len(off) != 1 {
					t.Errorf("off %d times after %v", len(off), 5*day+time.Hour)
				}
			})
		})
	}
}

// A process that was down for days disables nothing when it starts: nothing failed meanwhile, and
// the first attempt may succeed.
func TestFailing_ProcessWasDown_DisablesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	diary := &diary{}
	inBubble(t, webhooks.Config{}, status(http.StatusInternalServerError), func(b *bubble) {
		run := func(d time.Duration, then func(*webhooks.WebhookService)) {
			store, err := bolt.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			config := webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}
			service := b.newService(store, config)
			stop := start(b, service)
			if then != nil {
				then(service)
			}
			time.Sleep(d)
			stop()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		}
		run(3*day, func(s *webhooks.WebhookService) {
			subscribe(b, s, "https://a.example.com")
			publish(b, s)
			publish(b, s)
		})
		time.Sleep(6 * day)
		run(23*time.Hour, nil)
		if failing, off := diary.told(); len(failing) != 1 || len(off) != 0 {
			t.Errorf("23 hours after the start: warned %d times, off %d times", len(failing), len(off))
		}
		run(2*time.Hour, nil) // a short run
		run(26*time.Hour, nil)
		if _, off := diary.told(); len(off) != 1 {
			t.Errorf("off %d times in the end", len(off))
		}
	})
}
