package webhooks

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/alerting"
)

// alertDefaults fills in the fields of alerts, or returns an error that names the
// first that makes no sense.
func (c *Config) alertDefaults() error {
	if c.ApproachingRatios == nil {
		c.ApproachingRatios = []float64{0.8}
	}
	if c.FileLeads == nil {
		c.FileLeads = []time.Duration{7 * day, day}
	}
	setDefault(&c.FileScanInterval, time.Hour)
	switch {
	case slices.ContainsFunc(c.ApproachingRatios, func(r float64) bool { return !(r >= 1e-6 && r < 1) || alerting.Level(r) >= alerting.Reached }): // NaN, too
		return invalid("ApproachingRatios", "must be more than 0 and less than 1")
	case len(c.ApproachingRatios) > 20:
		return invalid("ApproachingRatios", "must be at most 20")
	case len(c.FileLeads) == 0 || len(c.FileLeads) > 20:
		return invalid("FileLeads", "must be from 1 to 20")
	case slices.ContainsFunc(c.FileLeads, func(d time.Duration) bool { return d <= 0 || d > maxLead }):
		return invalid("FileLeads", fmt.Sprintf("must be positive, and at most %v", maxLead))
	case c.FileScanInterval < time.Second:
		return invalid("FileScanInterval", "must be at least a second")
	}
	return nil
}

// maxLead is ten years, which bounds for how long deduplication keys are kept.
const maxLead = 3652 * day

// alertPolicy returns the policy of a Config with its defaults.
func (c *Config) alertPolicy() alerting.Policy {
	return alerting.NewPolicy(uint64(c.DefaultBalanceThreshold), uint64(c.BalanceHysteresis), c.ApproachingRatios, c.FileLeads)
}
