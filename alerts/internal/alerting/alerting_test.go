package alerting

import (
	"slices"
	"testing"
	"time"
)

func TestLead_SeveralLeads_ReturnsShortestThatHasBegun(t *testing.T) {
	const day = 24 * time.Hour
	p := testPolicy()
	for left, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: day, day: day, day + 1: 7 * day, 7 * day: 7 * day, 7*day + 1: 0,
	} {
		lead, due := p.Lead(noon.Add(left), noon)
		if lead != want || due != (want > 0) {
			t.Errorf("Lead with %v left = %v, %v; want %v", left, lead, due, want)
		}
	}
	if p.LongestLead() != 7*day {
		t.Errorf("LongestLead() = %v, want %v", p.LongestLead(), 7*day)
	}
}

// A report needs the subscribers only if the balance crosses a threshold, or differs too much from
// the stored balance.
func TestReportBalance_NoThresholdCrossed_DoesNotLoadSubscribers(t *testing.T) {
	p := testPolicy()
	loads := 0
	subscribers := func() []Subscriber {
		loads++
		return oneSubscriber()
	}
	var state []byte
	for _, step := range []struct {
		balance    uint64
		due        bool
		loads      bool
		deferrable bool
		low        []LowBalance
	}{
		{balance: 1000, loads: true},
		{balance: 1000},
		{balance: 990, deferrable: true},
		{balance: 980, loads: true},
		{balance: 980, due: true, loads: true},
		{balance: 9, loads: true, low: []LowBalance{{"wh_1", 9, 10}}},
		{balance: 9},
		{balance: 8, loads: true}, // more than a 64th
	} {
		before := loads
		d := p.ReportBalance(state, step.due, step.balance, subscribers)
		if loaded := loads > before; loaded != step.loads || d.Deferrable != step.deferrable || !slices.Equal(d.Low, step.low) {
			t.Errorf("%+v: loaded subscribers %v, got %+v", step, loaded, d)
		}
		state = d.State
	}
	if d := p.RepeatBalance(nil, true, subscribers); d.State != nil || d.Low != nil {
		t.Errorf("RepeatBalance without a report = %+v, want the zero decision", d)
	}
}

func TestScan_ClaimEndsOrIntervalPasses_NextProcessMayScan(t *testing.T) {
	at := ParseScan(nil)
	if wait := at.Wait(noon, time.Hour); !at.Done || wait > 0 {
		t.Errorf("first scan: Wait = %v, want none", wait)
	}
	at = at.Start(noon)
	if wait := at.Wait(noon, time.Hour); wait != ScanClaim {
		t.Errorf("claimed scan: Wait = %v, want %v", wait, ScanClaim)
	}
	if wait := at.Wait(noon.Add(-time.Hour), time.Hour); wait != ScanClaim {
		t.Errorf("claimed scan after the clock was set back: Wait = %v, want %v", wait, ScanClaim)
	}
	at.Cursor = "file_1"
	later := noon.Add(2 * time.Minute)
	if again := ParseScan(at.Encode()).Start(later); again.Begun != noon || again.Cursor != "file_1" || again.Claim != later.Add(ScanClaim) {
		t.Errorf("scan continued by another process = %+v, want the same start and cursor", again)
	}
	at.Done = true
	if wait := at.Wait(later, time.Hour); wait != 58*time.Minute {
		t.Errorf("after a finished scan: Wait = %v, want 58m", wait)
	}
	if next := at.Start(later); next.Begun != later || next.Cursor != "" {
		t.Errorf("next scan = %+v, want a new one begun at %v", next, later)
	}
}
