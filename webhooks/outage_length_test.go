package webhooks_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// During a store outage of any length and kind, nothing is sent twice and no attempt is used up.
// Neither a trial claim nor the claims after the outage may send a delivery again whose result is
// not recorded yet.
func TestStoreOutage_AnyLength_SendsNothingTwice(t *testing.T) {
	for name, outage := range map[string]struct {
		claim, settle error
		hangs         bool
		doubt         bool // settlements fail although they are stored
	}{
		"settlements fail":            {settle: errOutage},
		"all fails":                   {claim: errOutage, settle: errOutage},
		"settlements hang":            {settle: context.DeadlineExceeded, hangs: true},
		"settlements happen and fail": {settle: errOutage, doubt: true},
	} {
		for _, length := range []time.Duration{30 * time.Second, 90 * time.Second, 5 * time.Minute, time.Hour, day} {
			t.Run(fmt.Sprint(name, " for ", length), func(t *testing.T) {
				testOutage(t, length, func(b *bubble) func(on bool) {
					return func(on bool) {
						b.store.mu.Lock()
						defer b.store.mu.Unlock()
						b.store.loadErr, b.store.settleErr = nil, nil
						b.store.settleHangs, b.store.settleDoubts = on && outage.hangs, on && outage.doubt
						if on {
							b.store.loadErr, b.store.settleErr = outage.claim, outage.settle
						}
					}
				})
			})
		}
	}
}

// testOutage publishes to many webhooks, some of which fail once, before and during an outage of
// the given length.
func testOutage(t *testing.T, length time.Duration, breaker func(*bubble) func(on bool)) {
	const many = 40
	var requests atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(roundTrip)
		if requests.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	retries := slices.Repeat([]time.Duration{time.Minute}, 20)
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: retries}}, handler, func(b *bubble) {
		breaks := breaker(b)
		for i := range many {
			b.subscribe(fmt.Sprint("w", i))
		}
		b.start()
		var events []string
		publish := func() { events = append(events, b.publish()) }
		publish()
		time.Sleep(roundTrip / 2)
		breaks(true)
		for range 10 {
			publish()
			time.Sleep(length / 10)
		}
		breaks(false)
		publish()
		time.Sleep(2 * time.Hour)
		for _, event := range events {
			for _, got := range deliveries(b, b.service, event) {
				for i, attempt := range got.Attempts {
					if attempt.Number != i+1 {
						t.Fatalf("attempt %d has the number %d", i+1, attempt.Number)
					}
				}
				if got.State != webhooks.Delivered {
					t.Errorf("%s is %s after %d attempts", got.WebhookID, got.State, len(got.Attempts))
				}
			}
		}
		sent, recorded := make(map[string]int), 0
		for _, hit := range b.hits.of("") {
			sent[hit.host+" "+hit.id]++
		}
		for _, event := range events {
			for _, got := range deliveries(b, b.service, event) {
				recorded += len(got.Attempts)
			}
		}
		if n := len(b.hits.of("")); n != recorded {
			t.Errorf("%d requests, and %d attempts are recorded", n, recorded)
		}
		if len(sent) != many*len(events) {
			t.Errorf("%d of %d deliveries were sent", len(sent), many*len(events))
		}
	})
}

// If the store keeps refusing one settlement, its event is not sent again, and all other deliveries
// continue.
func TestSettle_RefusedForLong_SendsNothingAgain(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		poison := b.subscribe("a").ID
		b.subscribe("b")
		b.store.refuses(func(r *driver.AttemptResult) bool { return r.WebhookID == poison })
		b.start()
		event := b.publish()
		for range 6 * 60 {
			b.publish()
			time.Sleep(time.Minute)
		}
		b.store.refuses(nil)
		time.Sleep(time.Hour)
		sent := make(map[string]int)
		for _, hit := range b.hits.of("") {
			if sent[hit.host+" "+hit.id]++; sent[hit.host+" "+hit.id] > 1 {
				t.Fatalf("%s was sent twice to %s", hit.id, hit.host)
			}
		}
		for _, got := range deliveries(b, b.service, event) {
			if got.State != webhooks.Delivered || len(got.Attempts) != 1 || got.Attempts[0].Number != 1 {
				t.Errorf("%+v", got)
			}
		}
	})
}
