package alerting

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func testPolicy() Policy {
	return NewPolicy(0, 0, []float64{0.8}, []time.Duration{7 * 24 * time.Hour, 24 * time.Hour})
}

func oneSubscriber() []Subscriber { return []Subscriber{{ID: "wh_1", Threshold: 10}} }

// For any stored bytes, reports succeed: an unreadable state counts as missing, and the next state
// is readable.
func FuzzState(f *testing.F) {
	p := testPolicy()
	now := func() time.Time { return noon }
	balance := p.ReportBalance(nil, false, 9, oneSubscriber).State
	usage, refused := p.ReportUsage(nil, Usage{9, 10, "2026-11"}, now)
	if refused != "" {
		f.Fatal(refused)
	}
	scan := Scan{Begun: noon, Claim: noon, Cursor: "file_1"}
	for _, state := range [][]byte{balance, usage.State, scan.Encode()} {
		f.Add(state)
		f.Add(state[:len(state)-1])
	}
	f.Add([]byte{})
	f.Add([]byte("2 is a later version"))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, state []byte) {
		before := string(state)
		december := Usage{10, 10, "2026-12"}
		if _, refused := p.ReportUsage(state, december, now); refused != "" { // the stored period has another form
			if _, refused := p.ReportUsage(nil, december, now); refused != "" {
				t.Error(refused)
			}
		}
		next := p.ReportBalance(state, false, 10, oneSubscriber)
		next = p.ReportBalance(next.State, false, 9, oneSubscriber)
		if len(state) == 0 || state[0] != balanceVersion { // a state of the current version may be readable
			next = p.ReportBalance(next.State, false, 10, oneSubscriber)
			if next = p.ReportBalance(next.State, false, 9, oneSubscriber); len(next.Low) != 1 {
				t.Errorf("balance below the threshold: %d notifications, want 1", len(next.Low))
			}
		}
		if at := ParseScan(state); at.Wait(noon, time.Hour) > time.Hour {
			t.Errorf("Wait = %v, want at most an hour", at.Wait(noon, time.Hour))
		} else if again := ParseScan(at.Encode()); len(state) > 0 && state[0] == scanVersion && !at.Done && again != at {
			t.Errorf("scan %+v, encoded and parsed, became %+v", at, again)
		}
		if string(state) != before {
			t.Error("the given state was modified")
		}
	})
}
