package webhooks

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// An alertPolicy says when reports fire alerts.
type alertPolicy struct {
	threshold  Amount          // for webhooks that have none; 0: none
	hysteresis Amount          // how far above its threshold a balance is back
	levels     []uint32        // ascending, in millionths of a limit; the last one is reached
	leads      []time.Duration // ascending
}

// reached is the level of a limit that is reached, in millionths.
const reached = 1_000_000

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
	case slices.ContainsFunc(c.ApproachingRatios, func(r float64) bool { return !(r >= 1e-6 && r < 1) || level(r) >= reached }): // NaN, too
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

// level returns the ratio in millionths, which makes it exact.
func level(ratio float64) uint32 { return uint32(math.Round(ratio * reached)) }

// alertPolicy returns the policy of a Config with its defaults.
func (c *Config) alertPolicy() alertPolicy {
	p := alertPolicy{threshold: c.DefaultBalanceThreshold, hysteresis: c.BalanceHysteresis, leads: slices.Sorted(slices.Values(c.FileLeads))}
	for _, ratio := range c.ApproachingRatios {
		p.levels = append(p.levels, level(ratio))
	}
	slices.Sort(p.levels)
	p.levels = append(slices.Compact(p.levels), reached)
	return p
}

func (p *alertPolicy) longestLead() time.Duration { return p.leads[len(p.leads)-1] }
