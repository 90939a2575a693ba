package webhooks_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A clock that is set ahead turns off no webhook: what it was set by does not count
// before it has held for a day, and then the host is warned first.
func TestAClockSetAheadTurnsNothingOff(t *testing.T) {
	for name, before := range map[string]time.Duration{"warned": 3 * day, "not warned yet": day} {
		t.Run(name, func(t *testing.T) {
			var ahead atomic.Int64
			diary := &diary{}
			config := webhooks.Config{
				Hooks: diary.hooks(), Retries: []time.Duration{},
				Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			}
			inBubble(t, config, status(http.StatusInternalServerError), func(b *bubble) {
				webhook := b.subscribe("a")
				b.start()
				b.publishMany(2)
				time.Sleep(before)
				failing, _ := diary.told()
				warned := len(failing)
				ahead.Store(int64(31 * day))
				time.Sleep(20 * time.Hour)
				failing, off := diary.told()
				if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || len(off) > 0 || len(failing) != warned {
					t.Errorf("20 hours after the clock was set: warned %d times, before %d, off %d times: %+v, %v", len(failing), warned, len(off), got, err)
				}
				ahead.Store(0) // and set right again it is as if nothing had been
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
