package otelstorage

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/storageapi/storageapi/webhooks"
)

// statsTimeout is the maximum time for which a collection waits for the store.
const statsTimeout = 5 * time.Second

// SetStats makes each collection of metrics call stats, which must be the Stats method of the
// Handler's Webhooks. The call takes about a millisecond per 10,000 webhooks with pending
// deliveries. If it fails or takes longer than 5 seconds, storageapi.stats.up is 0 and the metrics
// based on stats are missing; all other metrics are collected. A nil stats stops the calls.
func (t *Telemetry) SetStats(stats func(context.Context) (webhooks.Stats, error)) {
	if stats == nil {
		t.stats.Store(nil)
		return
	}
	t.stats.Store(&stats)
}

func (t *Telemetry) registerStats(meter metric.Meter) error {
	instruments := maker{meter: meter}
	var (
		up        = instruments.gauge("storageapi.stats.up", "{store}", "1 if the store has returned its current figures, or 0.")
		halted    = instruments.gauge("storageapi.store.halted", "{store}", "1 if the store is read-only until the process is restarted, or 0.")
		pending   = instruments.gauge("storageapi.deliveries.pending", "{delivery}", "Pending deliveries of the whole store.")
		oldestDue = instruments.gauge("storageapi.deliveries.oldest_due", "s", "How long the oldest due delivery of the whole store has been due.")
		longest   = instruments.gauge("storageapi.deliveries.longest_wait", "s", "How long a webhook whose receiver is up, and for which this process delivers, has waited for an attempt.")
		held      = instruments.gauge("storageapi.webhooks.held", "{webhook}", "Webhooks of the whole store that are on hold after a restore.")
		inFlight  = instruments.gauge("storageapi.attempts.in_flight", "{attempt}", "Attempts in flight from this process.")
		dead      = instruments.total("storageapi.deliveries.dead", "{delivery}", "Deliveries that this process gave up.")
		size      = instruments.gauge("storageapi.file.size", "By", "Size of the store's file.")
		free      = instruments.gauge("storageapi.file.free", "By", "Free space within the store's file.")
	)
	if instruments.err != nil {
		return instruments.err
	}
	_, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		get := t.stats.Load()
		if get == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, statsTimeout)
		defer cancel()
		stats, err := (*get)(ctx)
		if err != nil {
			// Do not return an error: it would prevent the export of all metrics of the process,
			// for example at a shutdown, when the store is closed.
			o.ObserveFloat64(up, 0)
			return nil
		}
		o.ObserveFloat64(up, 1)
		o.ObserveFloat64(halted, oneIf(stats.Halted != nil))
		o.ObserveFloat64(pending, float64(stats.Pending))
		o.ObserveFloat64(oldestDue, stats.OldestDue.Seconds())
		o.ObserveFloat64(longest, stats.LongestWait.Seconds())
		o.ObserveFloat64(held, float64(stats.Held))
		o.ObserveFloat64(inFlight, float64(stats.InFlight))
		o.ObserveInt64(dead, int64(stats.Dead))
		o.ObserveFloat64(size, float64(stats.FileBytes))
		o.ObserveFloat64(free, float64(stats.FreeBytes))
		return nil
	}, up, halted, pending, oldestDue, longest, held, inFlight, dead, size, free)
	return err
}

func (m *maker) gauge(name, unit, description string) metric.Float64ObservableGauge {
	instrument, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return instrument
}

func (m *maker) total(name, unit, description string) metric.Int64ObservableCounter {
	instrument, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return instrument
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
