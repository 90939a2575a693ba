package alerts_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testclock"
)

func approaching(used, limit int64, period string, ratio float64) string {
	return fmt.Sprintf(`transactions.limit_approaching {"used":%d,"limit":%d,"period":%q,"ratio":%v}`, used, limit, period, ratio)
}

func reached(used, limit int64, period string) string {
	return fmt.Sprintf(`transactions.limit_reached {"used":%d,"limit":%d,"period":%q}`, used, limit, period)
}

// A useStep is a report and the expected notifications.
type useStep struct {
	used, limit int64
	period      string
	told        []string
}

func TestUsage(t *testing.T) {
	const november, december = "2026-11", "2026-12"
	tests := map[string]struct {
		ratios []float64
		steps  []useStep
	}{
		"each once per period": {nil, []useStep{
			{0, 10, november, nil}, {7, 10, november, nil}, {8, 10, november, []string{approaching(8, 10, november, 0.8)}},
			{9, 10, november, nil}, {10, 10, november, []string{reached(10, 10, november)}}, {11, 10, november, nil}, {3, 10, november, nil}, {12, 10, november, nil},
		}},
		"a jump past both": {nil, []useStep{
			{99, 10, november, []string{approaching(99, 10, november, 0.8), reached(99, 10, november)}}, {100, 10, november, nil},
		}},
		"several ratios": {[]float64{0.9, 0.5, 0.5}, []useStep{
			{5, 10, november, []string{approaching(5, 10, november, 0.5)}}, {8, 10, november, nil},
			{9, 10, november, []string{approaching(9, 10, november, 0.9)}}, {10, 10, november, []string{reached(10, 10, november)}},
			{10, 10, december, []string{approaching(10, 10, december, 0.5), approaching(10, 10, december, 0.9), reached(10, 10, december)}},
		}},
		"no ratios": {[]float64{}, []useStep{{9, 10, november, nil}, {10, 10, november, []string{reached(10, 10, november)}}}},
		"a raised limit": {nil, []useStep{
			{10, 10, november, []string{approaching(10, 10, november, 0.8), reached(10, 10, november)}},
			{10, 20, november, nil}, {16, 20, november, []string{approaching(16, 20, november, 0.8)}},
			{17, 21, november, []string{approaching(17, 21, november, 0.8)}}, {21, 21, november, []string{reached(21, 21, november)}},
		}},
		"a lowered limit": {nil, []useStep{
			{8, 10, november, []string{approaching(8, 10, november, 0.8)}}, {8, 9, november, nil}, {8, 8, november, []string{reached(8, 8, november)}}, {8, 7, november, nil},
		}},
		"a new period, and late reports of the old one": {nil, []useStep{
			{10, 10, november, []string{approaching(10, 10, november, 0.8), reached(10, 10, november)}},
			{1, 10, december, nil}, {10, 10, november, nil}, {99, 100, november, nil},
			{8, 10, december, []string{approaching(8, 10, december, 0.8)}}, {10, 10, november, nil}, {8, 10, december, nil},
		}},
		"0 is unlimited": {nil, []useStep{
			{math.MaxInt64, 0, november, nil}, {9, 10, "2026-10", nil}, {9, 10, november, []string{approaching(9, 10, november, 0.8)}},
			{10, 0, november, nil}, {10, 10, november, []string{approaching(10, 10, november, 0.8), reached(10, 10, november)}},
		}},
		"limits that no float holds": {nil, []useStep{
			{math.MaxInt64 / 5 * 4, math.MaxInt64, november, nil}, {math.MaxInt64/5*4 + 2, math.MaxInt64, november, []string{approaching(math.MaxInt64/5*4+2, math.MaxInt64, november, 0.8)}},
			{math.MaxInt64 - 1, math.MaxInt64, november, nil}, {math.MaxInt64, math.MaxInt64, november, []string{reached(math.MaxInt64, math.MaxInt64, november)}},
		}},
		"a limit of 1": {nil, []useStep{{0, 1, november, nil}, {1, 1, november, []string{approaching(1, 1, november, 0.8), reached(1, 1, november)}}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			box := newTeller()
			s := newService(t, box, testConfig{Alerts: alerts.Config{ApproachingRatios: test.ratios}, Now: testclock.At(noon).Now})
			for _, step := range test.steps {
				noError(t, s.ReportTransactions(t.Context(), account, step.used, step.limit, step.period))
				box.want(t, fmt.Sprintf("%d of %d in %s", step.used, step.limit, step.period), step.told...)
			}
		})
	}
}

// Bandwidth, transactions and accounts are counted separately.
func TestUsage_Kinds_AreCountedSeparately(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	noError(t, s.ReportBandwidth(t.Context(), account, 10, 10, "2026-11"))
	box.want(t, "bandwidth",
		`bandwidth.limit_approaching {"usedBytes":10,"limitBytes":10,"period":"2026-11","ratio":0.8}`,
		`bandwidth.limit_reached {"usedBytes":10,"limitBytes":10,"period":"2026-11"}`)
	noError(t, s.ReportTransactions(t.Context(), account, 8, 10, "2026-11"))
	box.want(t, "transactions", approaching(8, 10, "2026-11", 0.8))
	noError(t, s.ReportTransactions(t.Context(), "acct_2", 8, 10, "2026-11"))
	box.want(t, "another account", approaching(8, 10, "2026-11", 0.8))
}

func TestUsage_ManyReports_OnlyAlertsAreWritten(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	for used := range int64(1000) {
		noError(t, s.ReportBandwidth(t.Context(), account, used, 500, "2026-11"))
		noError(t, s.ReportBandwidth(t.Context(), account, used, 500, "2026-10"))
		noError(t, s.ReportBandwidth(t.Context(), "acct_2", used, 0, "2026-11"))
	}
	if n := box.wrote(); n != 4 { // the first report of each account, approaching, reached
		t.Errorf("wrote %d times, want 4", n)
	}
}

// A period is refused if its form differs from that of the previous periods, or if it is a month or
// day too far ahead. A refused report changes nothing.
func TestPeriod_OtherFormOrFarAhead_IsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		kept, odd, next string
		because         string // expected in the error; empty means no error
	}{
		"a month without its zero":  {"2026-11", "2026-9", "2026-12", `the format of the previous period, "2026-11"`},
		"a day after months":        {"2026-11", "2026-12-01", "2026-12", `the format of the previous period, "2026-11"`},
		"a month after days":        {"2026-11-30", "2026-12", "2026-12-01", `the format of the previous period, "2026-11-30"`},
		"other words":               {"week 46", "weeks 4", "week 47", `the format of the previous period, "week 46"`},
		"counted past the digits":   {"period 9", "period 10", "period 8", `the format of the previous period, "period 9"`},
		"a month far ahead":         {"2026-11", "2099-01", "2026-12", "more than 45 days"},
		"a month too far ahead":     {"2026-11", "2027-02", "2027-01", "more than 45 days"},
		"a day far ahead":           {"2026-11-20", "2027-01-05", "2027-01-04", "more than 45 days"},
		"a month far ahead, first":  {"", "2099-01", "2026-11", "more than 45 days"},
		"a word of any sort, first": {"", "now", "too", ""},
		"what is no month":          {"2026-47", "2026-48", "2026-49", ""},
	} {
		t.Run(name, func(t *testing.T) {
			box := newTeller()
			s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
			report := func(period string) error { return s.ReportTransactions(t.Context(), account, 10, 10, period) }
			if test.kept != "" {
				noError(t, report(test.kept))
			}
			box.told()
			box.wrote()
			err := report(test.odd)
			if test.because == "" {
				noError(t, err)
			} else {
				wantInvalid(t, err, "period")
				if !strings.Contains(err.Error(), test.because) {
					t.Errorf("%q does not say %q", err, test.because)
				}
				if box.wrote() != 0 {
					t.Error("it was written")
				}
			}
			box.told()
			noError(t, report(test.next))
			want := []string{approaching(10, 10, test.next, 0.8), reached(10, 10, test.next)}
			if test.next < test.kept {
				want = nil
			}
			box.want(t, "the next period", want...)
		})
	}
}

// A period stored while the clock was far ahead does not suppress later alerts.
func TestPeriod_StoredUnderWrongClock_DoesNotSuppressAlerts(t *testing.T) {
	box, clock := newTeller(), testclock.At(noon.AddDate(70, 0, 0))
	s := newService(t, box, testConfig{Now: clock.Now})
	noError(t, s.ReportTransactions(t.Context(), account, 10, 10, "2096-11"))
	box.told()
	clock.Set(noon)
	noError(t, s.ReportTransactions(t.Context(), account, 8, 10, "2026-11"))
	box.want(t, "the right period", approaching(8, 10, "2026-11", 0.8))
	noError(t, s.ReportTransactions(t.Context(), account, 10, 10, "2026-11"))
	box.want(t, "the right period", reached(10, 10, "2026-11"))
}

// A host that changes its period names calls ForgetPeriod.
func TestForgetPeriod(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now})
	noError(t, s.ForgetPeriod(t.Context(), account, alerts.MetricBandwidth))
	noError(t, s.ReportTransactions(t.Context(), account, 8, 10, "2026-11"))
	noError(t, s.ReportBandwidth(t.Context(), account, 8, 10, "2026-11"))
	box.told()
	wantInvalid(t, s.ReportTransactions(t.Context(), account, 9, 10, "2026-11-01"), "period")
	noError(t, s.ForgetPeriod(t.Context(), account, alerts.MetricTransactions))
	noError(t, s.ReportTransactions(t.Context(), account, 9, 10, "2026-11-01"))
	box.want(t, "the new form", approaching(9, 10, "2026-11-01", 0.8))
	noError(t, s.ReportBandwidth(t.Context(), account, 9, 10, "2026-11"))
	box.want(t, "the other metric")
	for _, metric := range []alerts.Metric{"", alerts.MetricBalance, "files"} {
		wantInvalid(t, s.ForgetPeriod(t.Context(), account, metric), "metric")
	}
	wantInvalid(t, s.ForgetPeriod(t.Context(), "", alerts.MetricBandwidth), "account")
}
