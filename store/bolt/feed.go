package bolt

import (
	"math"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/driver"
)

// A feed passes reports to the scheduler of the running Deliver.
type feed struct {
	// mu is read-locked during each report, so that no report is under way after end has returned.
	mu        sync.RWMutex
	scheduler driver.Scheduler // nil: Deliver is not running

	leftMu sync.Mutex
	left   [2]eventlog.Range // numbers that Deliver has not reported yet, by bucket

	list []driver.PendingDelivery // buffer for published
}

// everything is the range of all numbers, once for each bucket.
var everything = [2]eventlog.Range{{Last: math.MaxUint64}, {Last: math.MaxUint64}}

func (f *feed) begin(to driver.Scheduler) {
	f.setLeft(everything)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduler = to
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduler = nil
}

// report calls do with the scheduler, if Deliver is running.
func (f *feed) report(do func(to driver.Scheduler)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.scheduler != nil {
		do(f.scheduler)
	}
}

// published reports deliveries of a new event. Their numbers are consecutive, beginning with
// first. Call it only from AfterCommit, whose functions run one at a time: it reuses a buffer.
func (f *feed) published(first uint64, to []*indexedWebhook, due time.Time) {
	f.report(func(s driver.Scheduler) {
		f.list = f.list[:0]
		for i, w := range to {
			f.list = append(f.list, driver.PendingDelivery{Number: first + uint64(i), Webhook: &w.Webhook, Due: due})
		}
		s.Add(f.list)
	})
}

func (f *feed) add(d driver.PendingDelivery) {
	f.report(func(s driver.Scheduler) { s.Add([]driver.PendingDelivery{d}) })
}

func (f *feed) probe(webhookID string) {
	f.report(func(s driver.Scheduler) { s.Probe(webhookID) })
}

func (f *feed) webhook(w *driver.Webhook) {
	f.report(func(s driver.Scheduler) { s.Webhook(w) })
}

func (f *feed) ended(refs []driver.DeliveryRef) {
	f.report(func(s driver.Scheduler) { s.Ended(refs) })
}

func (f *feed) forget(scope driver.Scope) {
	f.report(func(s driver.Scheduler) { s.Forget(scope) })
}

func (f *feed) setLeft(left [2]eventlog.Range) {
	f.leftMu.Lock()
	defer f.leftMu.Unlock()
	f.left = left
}

// unreported returns, for each bucket, the range of numbers that Deliver has not reported yet.
func (f *feed) unreported() [2]eventlog.Range {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.scheduler == nil {
		return everything
	}
	f.leftMu.Lock()
	defer f.leftMu.Unlock()
	return f.left
}
