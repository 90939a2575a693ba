package postgres_test

import (
	"testing"
)

// BenchmarkLongestWait measures what a probe of health asks while deliveries are due for
// webhooks that are up, and while all of these rest.
//
//	go test -run '^$' -bench BenchmarkLongestWait -due 1000000 .
func BenchmarkLongestWait(b *testing.B) {
	p, server := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchEndpoints)
	fill(b, p, "storageapi", *benchDue)
	for _, test := range []struct{ name, change string }{
		{"due", `update storageapi.webhooks set proven_at = now()`},
		{"resting", `update storageapi.webhooks set rests_until = now() + interval '1 hour'`},
	} {
		if _, err := p.Exec(b.Context(), test.change); err != nil {
			b.Fatal(err)
		}
		b.Run(test.name, func(b *testing.B) {
			cpu := server.CPU()
			for b.Loop() {
				wait, err := s.LongestWait(b.Context())
				if err != nil || (wait > 0) != (test.name == "due") {
					b.Fatal(wait, err)
				}
			}
			b.ReportMetric(float64((server.CPU()-cpu).Microseconds())/float64(b.N), "cpu_us/op")
		})
	}
}
