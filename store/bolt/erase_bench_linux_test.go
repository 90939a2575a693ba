package bolt

import (
	"path/filepath"
	"testing"
)

// BenchmarkErase erases an account with 1 M pending deliveries, half of which have had an attempt,
// in steps of 500 as the service does. It reports the processor time, in milliseconds, of the step
// that holds the writer longest. It also reports how long publishing for other accounts takes,
// before the erasure and during it.
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

// eraseAlone erases an account. It returns the longest time that a step after the first held the
// writer.
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
