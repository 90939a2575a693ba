package scheduler

import (
	"testing"
	"time"
)

func TestOutage_AttemptsFailByThisHost_PausesThatDoubleAndTrials(t *testing.T) {
	var o Outage
	now := time.Now()
	limit := func(what string, want int, wantNext time.Time) {
		t.Helper()
		if got, next := o.Limit(now, 99, now); got != want || !next.Equal(wantNext) {
			t.Errorf("%s: Limit = %d, next in %v; want %d and %v", what, got, next.Sub(now), want, wantNext.Sub(now))
		}
	}
	o.End()
	limit("no outage", 99, now)
	if got := o.Turns(9); got != 9 {
		t.Errorf("without an outage %d of 9 attempts may be turns", got)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		if pause, tell := o.Begin(now); pause != want || tell != (i == 0) {
			t.Errorf("failure %d: a pause of %v, to be told %v; want %v, told once", i, pause, tell, want)
		}
		if pause, tell := o.Begin(now); pause != want || tell {
			t.Errorf("another failure in the pause: %v, %v; want %v", pause, tell, want)
		}
		limit("in the pause", 0, now.Add(want))
		now = now.Add(want)
		limit("after it", trialSize, now)
		o.Began(3)
		limit("in the trial", trialSize-3, now)
		o.Began(trialSize)
		limit("after the trial", 0, now.Add(maxOutagePause))
	}
	if got := o.Turns(9); got != 5 {
		t.Errorf("%d of 9 attempts may be turns, want 5", got)
	}
	now = now.Add(maxOutagePause)
	limit("nothing is known of the trial", trialSize, now)
	o.End()
	limit("it has ended", 99, now)
	if _, tell := o.Begin(now); tell {
		t.Error("an outage within a minute of the one before is to be told")
	}
	o.End()
	if pause, tell := o.Begin(now.Add(tellAgain)); pause != minOutagePause || !tell {
		t.Errorf("an outage a minute later: a pause of %v, to be told %v; want %v and told", pause, tell, minOutagePause)
	}
}
