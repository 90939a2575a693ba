package webhooks_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// arrivals counts the hits in each time step, starting at begin.
func arrivals(list []hit, begin time.Time, step time.Duration) (counts []int) {
	for _, one := range list {
		i := int(one.at.Sub(begin) / step)
		for len(counts) <= i {
			counts = append(counts, 0)
		}
		counts[i]++
	}
	return counts
}

// publishMany publishes n events.
func (b *bubble) publishMany(n int) {
	b.Helper()
	for range n {
		b.publish()
	}
}

const roundTrip = 100 * time.Millisecond

// Each round trip of successes raises a webhook's cap by one, up to PerWebhook, if enough
// deliveries are due to use it. A failure halves the cap.
func TestCap_SuccessesAndFailures_Adapts(t *testing.T) {
	var fails atomic.Bool
	handler := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(roundTrip)
		if fails.CompareAndSwap(true, false) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 6}}, handler, func(b *bubble) {
		b.subscribe("a")
		b.publishMany(200)
		begun := time.Now()
		b.start()
		time.Sleep(10*roundTrip - roundTrip/2)
		fails.Store(true)
		time.Sleep(10 * roundTrip)
		counts := arrivals(b.hits.of("a"), begun, roundTrip)
		for i, want := range []int{2, 3, 4, 5, 6, 6, 6, 6, 6, 6} {
			if counts[i] != want {
				t.Fatalf("requests in each round trip: %d, want one more in each up to 6", counts)
			}
		}
		// Attempts of the same round trip that ended before the failure are not affected; later attempts
		// may raise the cap again, by at most one.
		if after := min(counts[10], counts[11]); after < 3 || after > 4 || counts[15] != 6 {
			t.Errorf("requests in each round trip, one of which fails after the tenth: %d", counts)
		}
	})
}

// A webhook that does not use its cap fully keeps the first cap.
func TestCap_Unused_DoesNotGrow(t *testing.T) {
	gauge := newGauge()
	handler := func(_ http.ResponseWriter, r *http.Request) {
		defer gauge.enter(r.Host)()
		time.Sleep(roundTrip)
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		b.subscribe("a")
		b.start()
		for range 50 {
			b.publish()
			time.Sleep(2 * roundTrip)
		}
		b.publishMany(20)
		synctest.Wait()
		if now := gauge.current("a.example.com"); now != 2 {
			t.Errorf("%d requests at a time after a quiet time, want 2", now)
		}
	})
}

// For any backlog, a webhook gets no more concurrent attempts than its cap, which grows step by
// step.
func TestCap_Backlog_CausesNoBurst(t *testing.T) {
	gauge := newGauge()
	handler := func(_ http.ResponseWriter, r *http.Request) {
		defer gauge.enter(r.Host)()
		time.Sleep(roundTrip)
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		b.subscribe("a")
		const events = 10_000
		b.publishMany(events)
		begun := time.Now()
		b.start()
		time.Sleep(events / 16 * roundTrip * 12 / 10)
		synctest.Wait()
		if gauge.peak("a.example.com") != 16 {
			t.Errorf("%d at a time, want 16", gauge.peak("a.example.com"))
		}
		checkNoBurst(t, b.hits.of("a"), begun, roundTrip, 2, 16)
		if n := len(b.hits.of("a")); n != events {
			t.Errorf("%d requests for %d events", n, events)
		}
	})
}

// checkNoBurst fails the test if a round trip has more than most hits, or exceeds the highest
// earlier round trip by more than one hit. The first round trip may have up to first hits.
func checkNoBurst(t *testing.T, list []hit, begin time.Time, step time.Duration, first, most int) {
	t.Helper()
	counts := arrivals(list, begin, step)
	for i, n := range counts {
		if n > min(first+i, most) {
			t.Errorf("%d requests in round trip %d: %d", n, i, counts[:i+1])
			return
		}
	}
}

// After five consecutive failures a webhook gets one probe at a time, at growing intervals; the
// rest of its backlog uses up no attempts.
func TestBreaker_FiveFailures_ProbesOneAtATime(t *testing.T) {
	outage := newOutage()
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{500 * time.Hour}}}, outage.handle, func(b *bubble) {
		b.subscribe("a")
		const events = 300
		var ids []string
		for range events {
			ids = append(ids, b.publish())
		}
		begun := time.Now()
		b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		list := b.hits.of("a")
		if len(list) < 60 || len(list) > 90 {
			t.Fatalf("%d requests in an outage of an hour", len(list))
		}
		if list[5].at.Sub(begun) > 4*time.Second {
			t.Errorf("the first probe came after %v", list[5].at.Sub(begun))
		}
		pause := time.Second
		for i := 5; i < len(list); i++ {
			gap := list[i].at.Sub(list[i-1].at) - outage.takes
			if gap < pause*8/10 || gap > pause*12/10 {
				t.Errorf("probe %d came %v after the one before, want %v ±20 %%", i-4, gap, pause)
			}
			pause = min(2*pause, time.Minute)
		}
		attempts := 0
		for _, id := range ids {
			attempts += len(b.delivery(id).Attempts)
		}
		if attempts != len(list) {
			t.Errorf("%d attempts used up by %d requests", attempts, len(list))
		}
	})
}

// When a receiver has recovered, its rate begins with one request at a time, and at most doubles
// each second.
func TestBreaker_Recovers_RateRampsUp(t *testing.T) {
	outage := newOutage()
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{500 * time.Hour}}}, outage.handle, func(b *bubble) {
		b.subscribe("a")
		b.publishMany(5000)
		b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		down := len(b.hits.of("a"))
		outage.over.Store(true)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		list := b.hits.of("a")[down:]
		begun := list[0].at
		for i, n := range arrivals(list, begun, time.Second)[:20] {
			if most := min(1<<i, 16) * int(time.Second/outage.takes); n > most {
				t.Errorf("%d requests in second %d, want at most %d", n, i, most)
			}
		}
		counts := arrivals(list, begun, outage.takes)
		for i, n := range counts {
			if n > 16 {
				t.Errorf("%d requests in %v, step %d", n, outage.takes, i)
			}
		}
		if n := counts[20*8]; n != 16 {
			t.Errorf("%d requests at a time 8 s after the recovery", n)
		}
	})
}

// A restart with a backlog causes no burst, and the new process finds out which receivers are
// down.
func TestRestart_Backlog_CausesNoBurst(t *testing.T) {
	const events = 100_000
	for name, up := range map[string]bool{"up": true, "down": false} {
		t.Run(name, func(t *testing.T) {
			outage := newOutage()
			outage.over.Store(up)
			outage.takes = roundTrip
			inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{500 * time.Hour}}}, outage.handle, func(b *bubble) {
				b.subscribe("a")
				b.publishMany(events)
				for range 2 {
					b.service = b.newService(b.store, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{500 * time.Hour}}})
					before, begun := len(b.hits.of("a")), time.Now()
					stop := b.start()
					time.Sleep(20 * time.Second)
					stop()
					list := b.hits.of("a")[before:]
					checkNoBurst(t, list, begun, outage.takes, 2, 16)
					if !up && len(list) > 5+5 {
						t.Errorf("%d requests to a receiver that is down", len(list))
					}
					if up && len(list) < 16*150 {
						t.Errorf("%d requests to a receiver that is up", len(list))
					}
				}
			})
		})
	}
}

// A receiver that alternates between up and down gets everything, without a burst when it comes
// back.
func TestFlappingReceiver_GetsEverythingWithoutBurst(t *testing.T) {
	gauge := newGauge()
	handler := func(w http.ResponseWriter, r *http.Request) {
		defer gauge.enter(r.Host)()
		time.Sleep(roundTrip / 2)
		if time.Now().Unix()%20 < 5 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		b.subscribe("a")
		const events = 2000
		var ids []string
		for range events {
			ids = append(ids, b.publish())
		}
		b.start()
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		attempts := 0
		for _, id := range ids {
			got := b.delivery(id)
			attempts += len(got.Attempts)
			if got.State != webhooks.Delivered {
				t.Fatalf("%+v", got)
			}
		}
		if attempts > events*13/10 {
			t.Errorf("%d attempts for %d events", attempts, events)
		}
		if gauge.peak("") > 16 {
			t.Errorf("%d at a time", gauge.peak(""))
		}
	})
}

// Failures of this host do not count against the receiver.
func TestCap_LocalFailures_DoNotLowerIt(t *testing.T) {
	handler := func(http.ResponseWriter, *http.Request) { time.Sleep(roundTrip) }
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}, handler, func(b *bubble) {
		b.subscribe("a")
		var spoilt atomic.Int64
		b.store.spoil = func(task *driver.LoadedDelivery) {
			if spoilt.Add(1)%4 != 0 {
				task.Err = errOutage
			}
		}
		b.publishMany(400)
		begun := time.Now()
		b.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		list := b.hits.of("a")
		if len(list) != 100 || list[99].at.Sub(begun) > 5*time.Second {
			t.Errorf("%d requests, the last one after %v", len(list), list[len(list)-1].at.Sub(begun))
		}
	})
}
