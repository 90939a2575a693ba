package alerts

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/alerts/internal/alerting"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/webhooks"
)

// Config configures an [AlertService]: which events it publishes, and when. The zero Config works.
type Config struct {
	// DefaultBalanceThreshold is the threshold of webhooks that subscribe to balance.low without a
	// threshold. Use the same value on all nodes that share a store. Default: none; such webhooks
	// then get no balance.low from [AlertService.ReportBalance].
	DefaultBalanceThreshold Amount

	// BalanceHysteresis is how far a low balance must rise above its threshold before another
	// balance.low can be sent. Default: 0, so it only has to reach the threshold.
	BalanceHysteresis Amount

	// ApproachingRatios are the fractions of a limit, rounded to a millionth, at which an event
	// reports that the limit is approaching. Each is more than 0 and less than 1; at most 20
	// values. A non-nil empty slice means none. Default: 0.8.
	ApproachingRatios []float64

	// FileLeads are the times before a file's expiry at which an event reports that it is about to
	// expire. 1 to 20 values, each at most ten years. Default: 7 days and 1 day.
	FileLeads []time.Duration

	// HideEvents lists types of this package that the service does not offer, such as
	// [TypeBalanceLow] for a host without balances. Webhooks cannot subscribe to them, and reports
	// do not publish them. Webhooks that already subscribe to a hidden type stay subscribed: see
	// [webhooks.Config.Events]. Default: none; storageapi.NewHandler adds the types whose scope it
	// hides.
	HideEvents []webhooks.EventType

	// Unit is the unit of an [Amount], for pages, errors and the OpenAPI document, such as "EUR" or
	// "credits": at most 32 bytes. An Amount counts billionths of it. Default: "SUI".
	Unit string

	// Files lists the host's files. Run scans them for expiring files. Default: none; the host
	// calls [AlertService.ReportFiles].
	Files FileSource

	// FileScanInterval is the time from the start of one scan to the start of the next; at least a
	// second. Default: an hour.
	FileScanInterval time.Duration

	// Logger receives errors and warnings. Default: slog.Default().
	Logger *slog.Logger

	// Now is the clock for periods, expiry times and the schedule of scans. Default: time.Now.
	Now func() time.Time
}

const (
	day     = 24 * time.Hour
	maxLead = 3652 * day // limits how long deduplication keys are kept
)

// check fills in the defaults, or returns an error that names the first invalid field.
func (c *Config) check() error {
	if c.ApproachingRatios == nil {
		c.ApproachingRatios = []float64{0.8}
	}
	if c.FileLeads == nil {
		c.FileLeads = []time.Duration{7 * day, day}
	}
	c.Unit = cmp.Or(c.Unit, defaultUnit)
	c.FileScanInterval = cmp.Or(c.FileScanInterval, time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case slices.ContainsFunc(c.ApproachingRatios, func(r float64) bool { return !(r >= 1e-6 && r < 1) || alerting.Level(r) >= alerting.Reached }): // also rejects NaN
		return input.Invalid("ApproachingRatios", "must be more than 0 and less than 1")
	case len(c.ApproachingRatios) > 20:
		return input.Invalid("ApproachingRatios", "must be at most 20")
	case len(c.FileLeads) == 0 || len(c.FileLeads) > 20:
		return input.Invalid("FileLeads", "must be from 1 to 20")
	case slices.ContainsFunc(c.FileLeads, func(d time.Duration) bool { return d <= 0 || d > maxLead }):
		return input.Invalid("FileLeads", fmt.Sprintf("must be positive, and at most %v", maxLead))
	case slices.ContainsFunc(c.HideEvents, func(t webhooks.EventType) bool { return !slices.Contains(EventTypes(), t) }):
		return input.Invalid("HideEvents", "must be types of this package")
	case len(c.Unit) > 32 || !input.PlainText(c.Unit) || c.Unit != strings.TrimSpace(c.Unit):
		return input.Invalid("Unit", "must be at most 32 bytes of UTF-8 without control characters or surrounding spaces")
	case c.FileScanInterval < time.Second:
		return input.Invalid("FileScanInterval", "must be at least a second")
	}
	return nil
}
