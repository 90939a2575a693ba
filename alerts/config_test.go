package alerts_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestConfig(t *testing.T) {
	for field, configs := range map[string][]alerts.Config{
		"": {
			{ApproachingRatios: []float64{0.000001, 0.999999, 0.5, 0.5}, FileLeads: []time.Duration{1, 3652 * 24 * time.Hour}, FileScanInterval: time.Second},
			{ApproachingRatios: []float64{}, DefaultBalanceThreshold: math.MaxUint64, BalanceHysteresis: math.MaxUint64},
		},
		"ApproachingRatios": {
			{ApproachingRatios: []float64{0.8, 0}}, {ApproachingRatios: []float64{1}}, {ApproachingRatios: []float64{-0.1}}, {ApproachingRatios: []float64{80}},
			{ApproachingRatios: []float64{math.NaN()}}, {ApproachingRatios: []float64{0.9999999}}, {ApproachingRatios: []float64{1e-7}},
			{ApproachingRatios: make([]float64, 21)},
		},
		"FileLeads": {
			{FileLeads: []time.Duration{}}, {FileLeads: []time.Duration{0}}, {FileLeads: []time.Duration{-1}},
			{FileLeads: []time.Duration{3653 * 24 * time.Hour}}, {FileLeads: make([]time.Duration, 21)},
		},
		"HideEvents":       {{HideEvents: []webhooks.EventType{alerts.TypeBalanceLow, "teams.created"}}},
		"Unit":             {{Unit: " "}, {Unit: "EUR\n"}, {Unit: strings.Repeat("x", 33)}},
		"FileScanInterval": {{FileScanInterval: -1}, {FileScanInterval: time.Millisecond}},
	} {
		for _, config := range configs {
			_, err := open(memory.New(), testConfig{Alerts: config})
			if field == "" {
				noError(t, err)
			} else {
				wantInvalid(t, err, field)
			}
		}
	}
}

// A change of the host's Config after New has no effect.
func TestConfigIsCopied(t *testing.T) {
	box, ratios := newTeller(), []float64{0.8}
	s := newService(t, box, testConfig{Alerts: alerts.Config{ApproachingRatios: ratios}, Now: testclock.At(noon).Now})
	ratios[0] = 0.1
	noError(t, s.ReportTransactions(t.Context(), account, 7, 10, "2026-11"))
	box.want(t, "7 of 10")
}

func TestHideEvents_ReportsForHiddenTypes_PublishOthersOnly(t *testing.T) {
	box := newTeller()
	s := newService(t, box, testConfig{Now: testclock.At(noon).Now, Alerts: alerts.Config{
		DefaultBalanceThreshold: sui("10"), HideEvents: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeFilesExpiring, alerts.TypeBandwidthLimitApproaching},
	}})
	watch(t, s, "")
	noError(t, s.ReportBalance(t.Context(), account, sui("1")))
	noError(t, s.ReportFiles(t.Context(), account, []alerts.ExpiringFile{{ID: "file_1", ExpiresAt: noon.Add(time.Hour)}}))
	box.want(t, "reports of a balance and a file")
	noError(t, s.ReportBandwidth(t.Context(), account, 10, 10, "2026-11"))
	box.want(t, "a report that reaches both levels", `bandwidth.limit_reached {"usedBytes":10,"limitBytes":10,"period":"2026-11"}`)
}

func TestNew_UndeclaredEvents_MustBeHidden(t *testing.T) {
	store := memory.New()
	declared := alerts.Events()[1:]
	hooks, err := webhooks.New(store, webhooks.Config{Events: declared})
	noError(t, err)
	if _, err := alerts.New(store, hooks, alerts.Config{}); err == nil || !strings.Contains(err.Error(), `must declare "files.expiring"`) {
		t.Errorf("got %v", err)
	}
	_, err = alerts.New(store, hooks, alerts.Config{HideEvents: []webhooks.EventType{alerts.TypeFilesExpiring}})
	noError(t, err)
}
