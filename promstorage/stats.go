package promstorage

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageapi/storageapi/webhooks"
)

// statsTimeout is the maximum time for which a scrape waits for the store. It is less than
// Prometheus' default scrape timeout of 10 s.
const statsTimeout = 5 * time.Second

// SetStats makes each scrape call stats, which must be the Stats method of the Handler's Webhooks.
// The call takes about a millisecond per 10,000 webhooks with pending deliveries. If it fails or
// takes longer than 5 seconds, storageapi_stats_up is 0 and the metrics based on stats are missing;
// all other metrics are collected. A nil stats stops the calls.
func (c *Collector) SetStats(stats func(context.Context) (webhooks.Stats, error)) {
	if stats == nil {
		c.stats.Store(nil)
		return
	}
	c.stats.Store(&stats)
}

var (
	statsUp      = describe("stats_up", "1 if the store has returned its current figures, or 0.")
	storeHalted  = describe("store_halted", "1 if the store is read-only until the process is restarted, or 0.")
	pending      = describe("deliveries_pending", "Pending deliveries of the whole store.")
	oldestDue    = describe("deliveries_oldest_due_seconds", "How long the oldest due delivery of the whole store has been due.")
	longestWait  = describe("deliveries_longest_wait_seconds", "How long a webhook whose receiver is up, and for which this process delivers, has waited for an attempt.")
	webhooksHeld = describe("webhooks_held", "Webhooks of the whole store that are on hold after a restore.")
	inFlight     = describe("attempts_in_flight", "Attempts in flight from this process.")
	dead         = describe("deliveries_dead_total", "Deliveries that this process gave up.")
	fileBytes    = describe("file_size_bytes", "Size of the store's file.")
	freeBytes    = describe("file_free_bytes", "Free space within the store's file.")

	statsDescriptions = []*prometheus.Desc{statsUp, storeHalted, pending, oldestDue, longestWait, webhooksHeld, inFlight, dead, fileBytes, freeBytes}
)

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, nil)
}

func (c *Collector) collectStats(metrics chan<- prometheus.Metric) {
	get := c.stats.Load()
	if get == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	gauge := func(description *prometheus.Desc, value float64) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value)
	}
	counter := func(description *prometheus.Desc, value uint64) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.CounterValue, float64(value))
	}
	stats, err := (*get)(ctx)
	if err != nil {
		gauge(statsUp, 0)
		return
	}
	gauge(statsUp, 1)
	gauge(storeHalted, oneIf(stats.Halted != nil))
	gauge(pending, float64(stats.Pending))
	gauge(oldestDue, stats.OldestDue.Seconds())
	gauge(longestWait, stats.LongestWait.Seconds())
	gauge(webhooksHeld, float64(stats.Held))
	gauge(inFlight, float64(stats.InFlight))
	counter(dead, stats.Dead)
	gauge(fileBytes, float64(stats.FileBytes))
	gauge(freeBytes, float64(stats.FreeBytes))
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
