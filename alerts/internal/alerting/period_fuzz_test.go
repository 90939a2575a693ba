package alerting

import (
	"testing"
	"time"
)

// FuzzPeriods checks for any two periods that an accepted period is not far ahead and does not
// block later periods of the same form.
func FuzzPeriods(f *testing.F) {
	for _, seed := range [][2]string{
		{"2026-11", "2026-12"}, {"2026-11", "2026-9"}, {"2099-01", "2026-12"}, {"2026-11-20", "2026-11-21"}, {"week 1", "week 2"},
		{"", "\x00"}, {"9999-12-31", "0000-00-00"}, {"½", "1/2"}, {"2026-13", "2026-01"},
	} {
		f.Add(seed[0], seed[1])
	}
	p := testPolicy()
	f.Fuzz(func(t *testing.T, first, second string) {
		if first == "" || second == "" {
			return // the service refuses empty periods
		}
		var state []byte
		report := func(period string) (levels int, ok bool) {
			d, refused := p.ReportUsage(state, Usage{10, 10, period}, func() time.Time { return noon })
			if refused == "" {
				state = d.State
			}
			return len(d.Levels), refused == ""
		}
		if _, ok := report(first); !ok {
			return
		}
		levels, ok := report(second)
		if !ok {
			return
		}
		if len(first) != len(second) || levels == 2 != (second > first) {
			t.Errorf("%q after %q: %d levels notified; want 2 exactly if it sorts later, and periods of equal length", second, first, levels)
		}
		for _, period := range []string{first, second} {
			if at, err := time.Parse("2006-01", period); err == nil && at.After(noon.AddDate(0, 0, 45)) {
				t.Errorf("%q was accepted, want it refused as too far ahead", period)
			}
		}
	})
}
