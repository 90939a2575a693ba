package clock_test

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testclock"
)

const (
	hour = time.Hour
	day  = 24 * hour
	year = 365 * day
)

// A move lets time pass, sets the clock ahead of the true time, and holds the expected doubt.
type move struct{ pass, ahead, doubt time.Duration }

// A jump ahead is doubted for a day, but a jump back is not. The steady clock ignores both.
func TestClock_SystemClockIsSet_DoubtsJumpsAheadAndStaysSteady(t *testing.T) {
	for name, moves := range map[string][]move{
		"never":                     {{hour, 0, 0}, {year, 0, 0}},
		"a little, again and again": {{hour, 30 * time.Second, 0}, {hour, hour / 60, 0}, {hour, 90 * time.Second, 0}},
		"ahead":                     {{hour, 31 * day, 31 * day}, {day - 1, 31 * day, 31 * day}, {1, 31 * day, 0}, {day, 31 * day, 0}},
		"ahead, and right again":    {{hour, 31 * day, 31 * day}, {hour, 0, 0}, {2 * day, 0, 0}},
		"ahead, and almost right":   {{hour, 31 * day, 31 * day}, {hour, 30 * time.Second, 0}, {2 * day, 30 * time.Second, 0}},
		"ahead twice":               {{hour, day, day}, {23 * hour, 2 * day, 2 * day}, {23 * hour, 2 * day, 2 * day}, {hour, 2 * day, 0}},
		"back":                      {{hour, -year, 0}, {day, -year, 0}},
		"back, and right again":     {{hour, -year, 0}, {hour, 0, year}, {day, 0, 0}},
		"by centuries":              {{hour, 200 * year, 200 * year}, {hour, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				var system testclock.Clock
				c := clock.Clock{Now: system.Now}
				c.Watch()
				for i, m := range moves {
					time.Sleep(m.pass)
					system.RunAhead(m.ahead)
					if got := c.Doubt(); got != m.doubt {
						t.Errorf("move %d: doubt = %v, want %v", i, got, m.doubt)
					}
					soon := time.Now().Add(time.Second)
					steady := c.Steady(soon)
					if off := steady.Sub(soon.Round(0)).Abs(); off > 2*time.Minute {
						t.Errorf("move %d: steady clock off by %v, want at most 2m", i, off)
					}
					if shown, want := c.Wall(steady), soon.Round(0).Add(m.ahead); !shown.Equal(want) {
						t.Errorf("move %d: wall time of %v = %v, want %v", i, soon, shown, want)
					}
				}
			})
		})
	}
}

// A later process continues from a mark. The system's clock may have been set meanwhile.
func TestResume_ClockWasSetOrTimePassed_ContinuesSteadilyWithDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		ahead  time.Duration // how far the system's clock was set ahead before the mark
		gone   time.Duration // time that the system's clock shows as passed since the mark
		steady time.Duration // expected time passed on the steady clock
		doubt  time.Duration
	}{
		"at once":                       {},
		"soon":                          {gone: hour, steady: hour},
		"later":                         {gone: 31 * day, steady: 31 * day, doubt: 31 * day},
		"set back":                      {gone: -year},
		"set back a little":             {gone: -30 * time.Second, steady: -30 * time.Second},
		"set ahead before":              {ahead: 31 * day, steady: 0, doubt: 31 * day},
		"set ahead before, and later":   {ahead: 31 * day, gone: 2 * hour, steady: 2 * hour, doubt: 31*day + 2*hour},
		"set ahead before, right again": {ahead: 31 * day, gone: -31*day + hour, doubt: hour},
		"set back before":               {ahead: -year, gone: hour, steady: hour},
		"set back before, right again":  {ahead: -year, gone: year, steady: year, doubt: year},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				var system testclock.Clock
				before, after := clock.Clock{Now: system.Now}, clock.Clock{Now: system.Now}
				before.Watch()
				system.RunAhead(test.ahead)
				mark := before.Mark()
				system.RunAhead(test.ahead + test.gone)
				after.Resume(mark)
				now := after.Mark()
				if got := now.Steady.Sub(mark.Steady); got != test.steady {
					t.Errorf("elapsed on the steady clock = %v, want %v", got, test.steady)
				}
				if got := after.Doubt(); got != test.doubt {
					t.Errorf("doubt = %v, want %v", got, test.doubt)
				}
				if got := now.Wall.Sub(now.Sure); got != test.doubt {
					t.Errorf("doubt in the mark = %v, want %v", got, test.doubt)
				}
				time.Sleep(day - 1)
				if got := after.Doubt(); got != test.doubt {
					t.Errorf("doubt after almost a day = %v, want %v", got, test.doubt)
				}
				time.Sleep(time.Nanosecond)
				if got := after.Doubt(); got != 0 {
					t.Errorf("doubt after a day = %v, want 0", got)
				}
			})
		})
	}
}
