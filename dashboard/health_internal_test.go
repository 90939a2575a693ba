package dashboard

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDraw(t *testing.T) {
	each := make([]hour, hours+1)
	first := time.Date(2026, 11, 20, 21, 0, 0, 0, time.FixedZone("", 5400)) // 19:30 UTC
	ticks := []tick{{20, "2026-11-21T00:00:00Z", "00:00"}, {44, "2026-11-21T06:00:00Z", "06:00"}, {68, "2026-11-21T12:00:00Z", "12:00"}, {92, "2026-11-21T18:00:00Z", "18:00"}}
	first = first.Truncate(time.Hour)
	if diff := cmp.Diff(chart{Width: 250, Height: 48, Ticks: ticks}, draw(first, each)); diff != "" {
		t.Errorf("of nothing: %s", diff)
	}
	times := func(n int, d time.Duration) (list []time.Duration) {
		for range n {
			list = append(list, d)
		}
		return list
	}
	each[0] = hour{100, 100, times(100, time.Second)}
	each[1] = hour{1, 0, times(1, 500*time.Millisecond)} // a small bar must still be visible
	each[2] = hour{100, 0, nil}                          // attempts without responses
	each[23] = hour{50, 25, times(50, 0)}
	want := chart{
		Width: 250, Height: 48, Most: 100, Longest: "1.0 s", Ticks: ticks,
		Bars: []bar{
			{X: 0, Width: 8, SucceededY: 0, Succeeded: 48, FailedY: 0},
			{X: 10, Width: 8, SucceededY: 48, FailedY: 46, Failed: 2},
			{X: 20, Width: 8, SucceededY: 48, FailedY: 0, Failed: 48},
			{X: 230, Width: 8, SucceededY: 36, Succeeded: 12, FailedY: 24, Failed: 12},
		},
		Lines: []string{"4,2 14,24", "234,46 234,46"},
	}
	if diff := cmp.Diff(want, draw(first, each)); diff != "" {
		t.Error(diff)
	}
}
