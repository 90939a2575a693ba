package webhooks_test

import (
	"math"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestAlertConfig(t *testing.T) {
	for field, configs := range map[string][]webhooks.Config{
		"": {
			{Alerts: webhooks.Alerts{ApproachingRatios: []float64{0.000001, 0.999999, 0.5, 0.5}, FileLeads: []time.Duration{1, 3652 * 24 * time.Hour}, FileScanInterval: time.Second}},
			{Alerts: webhooks.Alerts{ApproachingRatios: []float64{}, DefaultBalanceThreshold: math.MaxUint64, BalanceHysteresis: math.MaxUint64}},
		},
		"Alerts.ApproachingRatios": {
			{Alerts: webhooks.Alerts{ApproachingRatios: []float64{0.8, 0}}}, {Alerts: webhooks.Alerts{ApproachingRatios: []float64{1}}}, {Alerts: webhooks.Alerts{ApproachingRatios: []float64{-0.1}}}, {Alerts: webhooks.Alerts{ApproachingRatios: []float64{80}}},
			{Alerts: webhooks.Alerts{ApproachingRatios: []float64{math.NaN()}}}, {Alerts: webhooks.Alerts{ApproachingRatios: []float64{0.9999999}}}, {Alerts: webhooks.Alerts{ApproachingRatios: []float64{1e-7}}},
			{Alerts: webhooks.Alerts{ApproachingRatios: make([]float64, 21)}},
		},
		"Alerts.FileLeads": {
			{Alerts: webhooks.Alerts{FileLeads: []time.Duration{}}}, {Alerts: webhooks.Alerts{FileLeads: []time.Duration{0}}}, {Alerts: webhooks.Alerts{FileLeads: []time.Duration{-1}}},
			{Alerts: webhooks.Alerts{FileLeads: []time.Duration{3653 * 24 * time.Hour}}}, {Alerts: webhooks.Alerts{FileLeads: make([]time.Duration, 21)}},
		},
		"Alerts.FileScanInterval": {{Alerts: webhooks.Alerts{FileScanInterval: -1}}, {Alerts: webhooks.Alerts{FileScanInterval: time.Millisecond}}},
	} {
		for _, config := range configs {
			_, err := webhooks.New(memory.New(), config)
			if field == "" {
				noError(t, err)
			} else {
				wantInvalid(t, err, field)
			}
		}
	}
}

// What a host does to its Config later changes nothing.
func TestAlertConfigIsCopied(t *testing.T) {
	box, ratios := newTeller(), []float64{0.8}
	s := newService(t, box, webhooks.Config{Alerts: webhooks.Alerts{ApproachingRatios: ratios}, Now: testclock.At(noon).Now})
	ratios[0] = 0.1
	noError(t, s.ReportTransactions(t.Context(), account, 7, 10, "2026-11"))
	box.want(t, "7 of 10")
}
