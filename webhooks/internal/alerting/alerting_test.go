package alerting

import (
	"slices"
	"testing"
	"time"
)

// The shortest lead that has begun is the one that a file is due for.
func TestLead(t *testing.T) {
	const day = 24 * time.Hour
	p := testPolicy()
	for left, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: day, day: day, day + 1: 7 * day, 7 * day: 7 * day, 7*day + 1: 0,
	} {
		lead, due := p.Lead(noon.Add(left), noon)
		if lead != want || due != (want > 0) {
			t.Errorf("with %v left: %v, %v, want %v", left, lead, due, want)
		}
	}
	if p.LongestLead() != 7*day {
		t.Errorf("the longest lead is %v", p.LongestLead())
	}
}

// Most reports of a balance ask for no subscribers; those between thresholds that differ
// too much from what is kept do.
func TestBalanceIsDecidedFromTheState(t *testing.T) {
	p := testPolicy()
	asked := 0
	subscribers := func() []Subscriber {
		asked++
		return oneSubscriber()
	}
	var state []byte
	for _, step := range []struct {
		balance    uint64
		due        bool
		asks       bool
		deferrable bool
		low        []LowBalance
	}{
		{balance: 1000, asks: true},
		{balance: 1000},
		{balance: 990, deferrable: true},
		{balance: 980, asks: true},
		{balance: 980, due: true, asks: true},
		{balance: 9, asks: true, low: []LowBalance{{"wh_1", 9, 10}}},
		{balance: 9},
		{balance: 8, asks: true}, // more than a 64th
	} {
		before := asked
		d := p.ReportBalance(state, step.due, step.balance, subscribers)
		if asks := asked > before; asks != step.asks || d.Deferrable != step.deferrable || !slices.Equal(d.Low, step.low) {
			t.Errorf("%+v: asked %v, decided %+v", step, asks, d)
		}
		state = d.State
	}
	if d := p.RepeatBalance(nil, true, subscribers); d.State != nil || d.Low != nil {
		t.Errorf("without a report: %+v", d)
	}
}

// A scan is left to the process that is at it, for a while, and then until the next is due.
func TestScanWait(t *testing.T) {
	at := ParseScan(nil)
	if wait := at.Wait(noon, time.Hour); !at.Done || wait > 0 {
		t.Errorf("the first scan waits for %v", wait)
	}
	at = at.Start(noon)
	if wait := at.Wait(noon, time.Hour); wait != ScanClaim {
		t.Errorf("others wait for %v", wait)
	}
	if wait := at.Wait(noon.Add(-time.Hour), time.Hour); wait != ScanClaim {
		t.Errorf("others wait for %v after the clock was set back", wait)
	}
	at.Cursor = "file_1"
	later := noon.Add(2 * time.Minute)
	if again := ParseScan(at.Encode()).Start(later); again.Begun != noon || again.Cursor != "file_1" || again.Claim != later.Add(ScanClaim) {
		t.Errorf("another process goes on at %+v", again)
	}
	at.Done = true
	if wait := at.Wait(later, time.Hour); wait != 58*time.Minute {
		t.Errorf("the next scan waits for %v", wait)
	}
	if next := at.Start(later); next.Begun != later || next.Cursor != "" {
		t.Errorf("the next scan is %+v", next)
	}
}
