package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// BenchmarkLeased claims what is due of 50 webhooks beside so many leases of others.
func BenchmarkLeased(b *testing.B) {
	for _, leases := range []int{0, 20_000, 100_000} {
		b.Run(fmt.Sprint(leases), func(b *testing.B) {
			p, _ := durable(b)
			s := openOn(b, p)
			endpoints(b, s, 50)
			fill(b, p, "storageapi", 50)
			if _, err := p.Exec(b.Context(), `insert into storageapi.leases (token, shard, webhook, event, account, until)
				select -i, 0, 1000000 + i % 1000, i, 'other_' || i % 1000, now() + interval '1 hour' from generate_series(1, $1::integer) i`, leases); err != nil {
				b.Fatal(err)
			}
			var claims []time.Duration
			for b.Loop() {
				at := time.Now()
				tasks, _, err := s.ClaimDeliveries(b.Context(), webhooks.Claim{Limit: 256, Cap: each(2), PerAccount: 100, Lease: time.Minute})
				claims = append(claims, time.Since(at))
				if err != nil || len(tasks) != 50 {
					b.Fatalf("claimed %d, want 50; %v", len(tasks), err)
				}
				var list []webhooks.Settlement
				for _, task := range tasks {
					list = append(list, webhooks.Settlement{Task: task, Outcome: webhooks.Release})
				}
				if _, err := s.SettleDeliveries(b.Context(), list); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(millis(quantile(claims, 0.5)), "claim_p50_ms")
			b.ReportMetric(millis(quantile(claims, 0.99)), "claim_p99_ms")
		})
	}
}
