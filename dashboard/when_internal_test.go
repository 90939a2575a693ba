package dashboard

import (
	"testing"
	"time"
)

func TestNear(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "just now"},
		{-9 * time.Second, "just now"},
		{time.Second, "in a moment"},
		{-10 * time.Second, "10 seconds ago"},
		{59 * time.Second, "in 59 seconds"},
		{-time.Minute, "1 minute ago"},
		{119 * time.Minute, "in 1 hour"},
		{-23 * time.Hour, "23 hours ago"},
		{day, "in 1 day"},
		{-59 * day, "59 days ago"},
		{60 * day, "in 2 months"},
		{-729 * day, "24 months ago"},
		{730 * day, "in 2 years"},
		{1<<63 - 1, "in 292 years"},
	}
	for _, test := range tests {
		if got := near(test.d); got != test.want {
			t.Errorf("%v: got %q, want %q", test.d, got, test.want)
		}
	}
}

func TestTook(t *testing.T) {
	tests := map[time.Duration]string{
		0: "0.00 ms", 456 * time.Microsecond: "0.46 ms", 9870 * time.Microsecond: "9.9 ms",
		12345 * time.Microsecond: "12 ms", 999 * time.Millisecond: "999 ms", 15 * time.Second: "15.0 s",
		931500 * time.Millisecond: "15 min 31 s", 2*time.Hour + 5*time.Minute + time.Second: "2 h 5 min", 50*time.Hour + 59*time.Minute: "2 d 2 h",
	}
	for d, want := range tests {
		if got := took(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	tests := []struct {
		part, whole int
		want        string
	}{{0, 3, "0%"}, {1, 3, "33.3%"}, {1, 2, "50%"}, {9999, 10000, "99.9%"}, {10000, 10000, "100%"}, {1, 10000, "0%"}}
	for _, test := range tests {
		if got := percent(test.part, test.whole); got != test.want {
			t.Errorf("%d of %d: got %q, want %q", test.part, test.whole, got, test.want)
		}
	}
}
