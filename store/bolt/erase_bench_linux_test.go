package bolt

import (
	"path/filepath"
	"testing"
)

// BenchmarkErase erases an account with 1 M deliveries pending, half of them as they were published
// and half to be retried, in steps of 500 as the service does. It measures the longest that a step has held the
// writer, in milliseconds of processor time; and how long publishing for others takes meanwhile, against before.
//
//	go test -run '^$' -bench Erase -benchtime 1x ./store/bolt
func BenchmarkErase(b *testing.B) {
	pending := 1_000_000
	if testing.Short() {
		pending = 20_000
	}
	for b.Loop() {
		b.StopTimer()
		s, err := open(filepath.Join(b.TempDir(), "erase.db"))
		if err != nil {
			b.Fatal(err)
		}
		for i := range 2 {
			makePending(b, s, i, pending)
		}
		b.StartTimer()
		longest := eraseAlone(b, s, benchWebhook(0).Account)
		before, during := publishBeside(b, s, func() {
			for more := true; more; {
				if _, more, err = s.EraseAccount(b.Context(), benchWebhook(1).Account, 500); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.ReportMetric(longest, "longest-cpu-ms")
		b.ReportMetric(quantile(before, 50), "p50-before-µs")
		b.ReportMetric(quantile(during, 50), "p50-during-µs")
		b.ReportMetric(quantile(before, 99), "p99-before-µs")
		b.ReportMetric(quantile(during, 99), "p99-during-µs")
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// eraseAlone erases an account, and returns the longest that a step after the first has held the writer.
func eraseAlone(b *testing.B, s *engine, account string) (longest float64) {
	if _, _, err := s.EraseAccount(b.Context(), account, 500); err != nil {
		b.Fatal(err)
	}
	for {
		looked, begun, err := s.findErasure(b.Context(), account)
		if err != nil {
			b.Fatal(err)
		}
		if !begun {
			return longest
		}
		longest = max(longest, holds(b, s, func(batch *batch) error {
			_, _, err := s.eraseStep(batch, looked, 500)
			return err
		}))
	}
}
