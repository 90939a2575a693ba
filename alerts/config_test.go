package alerts_test

import (
	"math"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/memory"
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
