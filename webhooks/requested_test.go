package webhooks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A redelivery for an account is attempted within a second, even if its receiver was down, and no
// matter how many redeliveries another account requests.
func TestRedeliver_OthersRedeliverToHangingReceivers_StartsWithinASecond(t *testing.T) {
	for _, concurrency := range []int{8, 64, 1024} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			hangers := newHangers()
			handler := func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.Host, "down") {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				hangers.handle(w, r)
			}
			retries := []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, time.Hour}
			inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{Total: concurrency}, Retry: webhooks.RetryPolicy{Delays: retries}}, handler, func(b *bubble) {
				var slow []webhooks.Webhook
				for i := range 60 { // too few for the service to know the usual latency
					slow = append(slow, b.subscribeFor("loops", fmt.Sprint("slow", i)))
				}
				down := b.subscribeFor("other", "down")
				b.start()
				looped, event := b.publishFor("loops"), b.publishFor("other")
				time.Sleep(time.Minute)
				hangers.hang.Store(true)
				redeliver := func(account, webhook, event string) {
					if err := b.service.Redeliver(b.Context(), account, webhook, event); err != nil {
						b.Error(err)
					}
				}
				stop := make(chan struct{})
				go func() {
					for {
						for _, w := range slow {
							redeliver("loops", w.ID, looped)
						}
						select {
						case <-stop:
							return
						case <-time.After(500 * time.Millisecond):
						}
					}
				}()
				time.Sleep(10 * time.Second)
				for i := range 10 {
					before := len(b.hits.of("down"))
					redeliver("other", down.ID, event)
					time.Sleep(time.Second)
					synctest.Wait()
					if got := len(b.hits.of("down")); got != before+1 {
						t.Errorf("redelivery %d: %d attempts within a second, want 1", i, got-before)
					}
					time.Sleep(5*time.Second + 77*time.Millisecond)
				}
				if n := hangers.gauge.current("slow"); n == 0 {
					t.Error("precondition failed: nothing is in flight to the receivers that hang")
				}
				close(stop)
				synctest.Wait()
			})
		})
	}
}
