package dashboard

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDraw(t *testing.T) {
	var each [hours]hour
	if diff := cmp.Diff(chart{Width: 240, Height: 48}, draw(&each)); diff != "" {
		t.Errorf("of nothing: %s", diff)
	}
	times := func(n int, d time.Duration) (list []time.Duration) {
		for range n {
			list = append(list, d)
		}
		return list
	}
	each[0] = hour{100, times(100, time.Second)}
	each[1] = hour{0, times(1, 500*time.Millisecond)} // must be visible although it is small
	each[23] = hour{25, times(50, 0)}
	want := chart{
		Width: 240, Height: 48, Longest: "1.0 s",
		Bars: []bar{
			{X: 0, Width: 8, SucceededY: 0, Succeeded: 48, FailedY: 0},
			{X: 10, Width: 8, SucceededY: 48, FailedY: 46, Failed: 2},
			{X: 230, Width: 8, SucceededY: 36, Succeeded: 12, FailedY: 24, Failed: 12},
		},
		Lines: []string{"4,2 14,24", "234,46 234,46"},
	}
	if diff := cmp.Diff(want, draw(&each)); diff != "" {
		t.Error(diff)
	}
}
