package promstorage

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

// A Collector is a [prometheus.Collector] for a storageapi.Handler. Create it with [New]. All methods
// are safe for concurrent use.
type Collector struct {
	authentications     *prometheus.HistogramVec // by outcome
	publishing          *prometheus.HistogramVec // by result, as for all calls of the store
	publishedEvents     *prometheus.CounterVec   // by event_type
	publishedBytes      *prometheus.CounterVec   // by event_type
	publishedDeliveries prometheus.Counter
	claiming            *prometheus.HistogramVec
	claimedDeliveries   prometheus.Counter
	attempts            *prometheus.CounterVec   // by event_type, result, class, status
	attemptDurations    *prometheus.HistogramVec // by result
	deliveryDelays      prometheus.Histogram
	settling            *prometheus.HistogramVec
	settledDeliveries   prometheus.Counter
	settledStale        prometheus.Counter
	committing          *prometheus.HistogramVec
	commitSteps         prometheus.Counter
	changes             *prometheus.CounterVec // by action
	lost                prometheus.Counter

	counted []prometheus.Collector // all collectors above
	stats   atomic.Pointer[func(context.Context) (webhooks.Stats, error)]
}

// Upper bounds of histograms, in seconds.
var (
	authenticationBounds = []float64{.00001, .0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
	storeBounds          = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	attemptBounds        = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	delayBounds          = []float64{.05, .25, 1, 5, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600, 3 * 24 * 3600}
)

// New returns a Collector. Register it once, and pass its [Collector.Observer] to one Handler.
func New() *Collector {
	c := &Collector{}
	c.authentications = c.histograms("authentication_duration_seconds", "Time to verify the API key of a request.", authenticationBounds, "outcome")
	c.publishing = c.histograms("publish_duration_seconds", "Time of the calls of the store that store events.", storeBounds, "result")
	c.publishedEvents = c.counters("published_events_total", "Published events.", "event_type")
	c.publishedBytes = c.counters("published_bytes_total", "Size of the bodies of published events, in bytes.", "event_type")
	c.publishedDeliveries = c.counter("published_deliveries_total", "Deliveries of published events.")
	c.claiming = c.histograms("claim_duration_seconds", "Time of the calls of the store that claim deliveries.", storeBounds, "result")
	c.claimedDeliveries = c.counter("claimed_deliveries_total", "Claimed deliveries.")
	c.attempts = c.counters("attempts_total", "Attempts to deliver an event.", "event_type", "result", "class", "status")
	c.attemptDurations = c.histograms("attempt_duration_seconds", "Time of attempts, from the look-up of the name to the response.", attemptBounds, "result")
	c.deliveryDelays = add(c, prometheus.NewHistogram(histogramOptions("delivery_delay_seconds", "Time from the timestamp of an event to its arrival.", delayBounds)))
	c.settling = c.histograms("settle_duration_seconds", "Time of the calls of the store that record results of attempts.", storeBounds, "result")
	c.settledDeliveries = c.counter("settled_deliveries_total", "Results of attempts passed to the store.")
	c.settledStale = c.counter("settled_stale_total", "Results dropped because another worker has the delivery.")
	c.committing = c.histograms("commit_duration_seconds", "Time to write and sync a commit of the file.", storeBounds, "result")
	c.commitSteps = c.counter("commit_steps_total", "Calls of the store that share the commits of the file.")
	c.changes = c.counters("changes_total", "Changes of keys and webhooks.", "action")
	c.lost = c.counter("observations_lost_total", "Observations missing in the other metrics because the queue was full.")

	// A series must start at 0 to show its first increase.
	for _, outcome := range observe.Outcomes() {
		c.authentications.WithLabelValues(string(outcome))
	}
	for _, action := range audit.Actions() {
		c.changes.WithLabelValues(string(action))
	}
	for _, result := range observe.Results() {
		c.attemptDurations.WithLabelValues(string(result))
	}
	for _, call := range []*prometheus.HistogramVec{c.publishing, c.claiming, c.settling, c.committing} {
		for _, result := range []string{ok, failed, canceled} {
			call.WithLabelValues(result)
		}
	}
	return c
}

// Observer returns the Observer for storageapi.Config.Observe. Use [observe.Join] to add others.
func (c *Collector) Observer() observe.Observer {
	return observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) {
			c.authentications.WithLabelValues(string(a.Outcome)).Observe(a.Duration.Seconds())
		},
		Published: func(_ context.Context, p observe.Publication) { c.published(p) },
		Changed:   func(n audit.Entry) { c.changes.WithLabelValues(string(n.Action)).Inc() },
		Claimed: func(claim observe.Claim) {
			c.claiming.WithLabelValues(resultOf(claim.Err)).Observe(claim.Duration.Seconds())
			c.claimedDeliveries.Add(float64(claim.Claimed))
		},
		Attempted: c.attempted,
		Settled: func(s observe.Settlement) {
			c.settling.WithLabelValues(resultOf(s.Err)).Observe(s.Duration.Seconds())
			if s.Err == nil {
				c.settledDeliveries.Add(float64(s.Size))
				c.settledStale.Add(float64(s.Stale))
			}
		},
		Committed: func(commit observe.Commit) {
			c.committing.WithLabelValues(resultOf(commit.Err)).Observe(commit.Duration.Seconds())
			if commit.Err == nil {
				c.commitSteps.Add(float64(commit.Steps))
			}
		},
		Lost: func(n int) { c.lost.Add(float64(n)) },
	}
}

func (c *Collector) published(p observe.Publication) {
	c.publishing.WithLabelValues(resultOf(p.Err)).Observe(p.Duration.Seconds())
	if p.Err != nil {
		return
	}
	c.publishedDeliveries.Add(float64(p.Deliveries))
	for _, event := range p.Events {
		c.publishedEvents.WithLabelValues(event.Type).Inc()
		c.publishedBytes.WithLabelValues(event.Type).Add(float64(event.Bytes))
	}
}

func (c *Collector) attempted(a observe.Attempt) {
	c.attempts.WithLabelValues(a.EventType, string(a.Result), a.Class, statusOf(a.Status)).Inc()
	c.attemptDurations.WithLabelValues(string(a.Result)).Observe(a.Duration.Seconds())
	if a.Result == observe.Delivered && !a.EventTimestamp.IsZero() {
		arrived := a.StartedAt.Add(a.Duration)
		c.deliveryDelays.Observe(max(0, arrived.Sub(a.EventTimestamp).Seconds())) // negative if clocks differ
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, collector := range c.counted {
		collector.Describe(descriptions)
	}
	for _, description := range statsDescriptions {
		descriptions <- description
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, collector := range c.counted {
		collector.Collect(metrics)
	}
	c.collectStats(metrics)
}

// Labels of calls of the store.
const (
	ok       = "ok"
	failed   = "failed"
	canceled = "canceled" // by the caller, so the store has not failed
)

func resultOf(err error) string {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, context.Canceled):
		return canceled
	}
	return failed
}

// statusOf returns the class of a status, because receivers could return 900 different statuses.
func statusOf(status int) string {
	switch {
	case status == 0:
		return "none"
	case status >= 100 && status < 600:
		return string('0'+rune(status/100)) + "xx"
	}
	return "other"
}

// add adds collector to c.
func add[C prometheus.Collector](c *Collector, collector C) C {
	c.counted = append(c.counted, collector)
	return collector
}

const namespace = "storageapi"

func histogramOptions(name, help string, bounds []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: bounds}
}

func (c *Collector) histograms(name, help string, bounds []float64, label string) *prometheus.HistogramVec {
	return add(c, prometheus.NewHistogramVec(histogramOptions(name, help, bounds), []string{label}))
}

func (c *Collector) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return add(c, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (c *Collector) counter(name, help string) prometheus.Counter {
	return add(c, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}))
}
