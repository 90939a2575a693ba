package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// BenchmarkPurge removes all rows of n events, in steps as large as those of webhooks.Retention.
// The flag -due sets n. Nine tenths of the events are delivered, and the others are pending.
// Meanwhile, other goroutines publish and claim. The times of their calls show how much a step
// delays them.
func BenchmarkPurge(b *testing.B) {
	p, _ := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchEndpoints)
	for b.Loop() {
		fill(b, p, postgres.DefaultSchema, *benchDue)
		_, err := p.Exec(b.Context(), `
			with settled as (delete from storageapi.pending where event / 4096 % 10 <> 0 returning webhook, event)
			insert into storageapi.attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
			select event, webhook, 1, 1, now(), 1000, 200, '', '', '' from settled`)
		if err != nil {
			b.Fatal(err)
		}
		border := time.Now()
		ctx, stop := context.WithCancel(b.Context())
		var others sync.WaitGroup
		var publishes, claims, steps []time.Duration
		others.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				publishes = append(publishes, timed(b, func() error {
					_, err := s.Enqueue(b.Context(), driver.EncodedEvent{
						ID: fmt.Sprint(border.UnixNano(), i), Account: "acct_wh_000001", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte("{}"),
					})
					return err
				}))
			}
		})
		others.Go(func() {
			for ctx.Err() == nil {
				claims = append(claims, timed(b, func() error {
					_, err := storetest.WorkerOf(s).Claim(b.Context(), 10)
					return err
				}))
				time.Sleep(time.Millisecond)
			}
		})
		b.ResetTimer()
		for more := true; more && !b.Failed(); {
			steps = append(steps, timed(b, func() (err error) {
				more, err = s.Purge(b.Context(), driver.Purge{Payloads: border, Attempts: border, EventIDs: border, Limit: 1000})
				return err
			}))
		}
		stop()
		others.Wait()
		for name, list := range map[string][]time.Duration{"step": steps, "publish": publishes, "claim": claims} {
			b.ReportMetric(millis(quantile(list, 0.5)), name+"_p50_ms")
			b.ReportMetric(millis(slices.Max(list)), name+"_max_ms")
		}
		b.ReportMetric(float64(len(steps)), "steps")
	}
}

// timed returns the duration of do.
func timed(b *testing.B, do func() error) time.Duration {
	begun := time.Now()
	if err := do(); err != nil {
		b.Error(err)
	}
	return time.Since(begun)
}
