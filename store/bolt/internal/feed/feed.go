// Package feed reports pending deliveries to the scheduler of a running Deliver.
package feed

import (
	"math"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/driver"
)

// Ranges holds a range of delivery numbers for each bucket of pending deliveries:
// eventlog.AsPublished and eventlog.Attempted.
type Ranges [2]eventlog.Range

// Everything returns the ranges of all numbers up to last.
func Everything(last uint64) Ranges { return Ranges{{Last: last}, {Last: last}} }

// A Feed passes reports to the scheduler of the running Deliver. If Deliver is not running, reports
// have no effect.
type Feed struct {
	// mu is read-locked during each report, so that no report is under way after End has returned.
	mu        sync.RWMutex
	scheduler driver.Scheduler // nil unless Deliver is running

	leftMu sync.Mutex
	left   Ranges // numbers that Deliver has not reported yet

	list []driver.PendingDelivery // buffer for Published
}

// Begin starts passing reports to a scheduler. All deliveries count as unreported.
func (f *Feed) Begin(to driver.Scheduler) {
	f.SetLeft(Everything(math.MaxUint64))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduler = to
}

// End waits for the reports under way. No report begins afterwards.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduler = nil
}

// SetLeft sets the ranges of deliveries that Deliver has not reported yet.
func (f *Feed) SetLeft(left Ranges) {
	f.leftMu.Lock()
	defer f.leftMu.Unlock()
	f.left = left
}

// Unreported returns the ranges of deliveries that Deliver has not reported yet.
func (f *Feed) Unreported() Ranges {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.scheduler == nil {
		return Everything(math.MaxUint64)
	}
	f.leftMu.Lock()
	defer f.leftMu.Unlock()
	return f.left
}

// Report calls do with the scheduler, if Deliver is running.
func (f *Feed) Report(do func(to driver.Scheduler)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.scheduler != nil {
		do(f.scheduler)
	}
}

// Published reports deliveries of a new event. Their numbers are consecutive, beginning with first.
// It reuses a buffer, so call it only from functions passed to AfterCommit, which run one at a
// time.
func (f *Feed) Published(first uint64, to []*driver.Webhook, due time.Time) {
	f.Report(func(s driver.Scheduler) {
		f.list = f.list[:0]
		for i, w := range to {
			f.list = append(f.list, driver.PendingDelivery{Number: first + uint64(i), Webhook: w, Due: due})
		}
		s.Add(f.list)
	})
}

// Add reports a pending delivery.
func (f *Feed) Add(d driver.PendingDelivery) {
	f.Report(func(s driver.Scheduler) { s.Add([]driver.PendingDelivery{d}) })
}

// Probe requests an attempt for the webhook.
func (f *Feed) Probe(webhookID string) {
	f.Report(func(s driver.Scheduler) { s.Probe(webhookID) })
}

// Webhook reports a changed webhook.
func (f *Feed) Webhook(w *driver.Webhook) {
	f.Report(func(s driver.Scheduler) { s.Webhook(w) })
}

// Ended reports deliveries that a purge has ended.
func (f *Feed) Ended(refs []driver.DeliveryRef) {
	f.Report(func(s driver.Scheduler) { s.Ended(refs) })
}

// Forget reports that the deliveries of the scope are gone.
func (f *Feed) Forget(scope driver.Scope) {
	f.Report(func(s driver.Scheduler) { s.Forget(scope) })
}
