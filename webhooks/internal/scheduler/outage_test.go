package scheduler

import (
	"testing"
	"time"
)

func TestOutage_AttemptsFailByThisHost_DoublingPausesAndTrials(t *testing.T) {
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
		t.Errorf("without an outage: Turns(9) = %d, want 9", got)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		if pause, report := o.Begin(now); pause != want || report != (i == 0) {
			t.Errorf("failure %d: pause %v, report %v; want pause %v, reported once", i, pause, report, want)
		}
		if pause, report := o.Begin(now); pause != want || report {
			t.Errorf("another failure in the pause: pause %v, report %v; want %v, false", pause, report, want)
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
		t.Errorf("in an outage: Turns(9) = %d, want 5", got)
	}
	now = now.Add(maxOutagePause)
	limit("nothing is known of the trial", trialSize, now)
	o.End()
	limit("it has ended", 99, now)
	if _, report := o.Begin(now); report {
		t.Error("second outage within a minute: report = true, want false")
	}
	o.End()
	if pause, report := o.Begin(now.Add(reportInterval)); pause != minOutagePause || !report {
		t.Errorf("outage a minute later: pause %v, report %v; want %v, true", pause, report, minOutagePause)
	}
}
