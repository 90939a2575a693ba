package feed_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/bolt/internal/feed"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test ends a feed while a report is under way. Reports before Begin and after End have no
// effect.
func TestEnd_ReportUnderWay_WaitsForIt(t *testing.T) {
	var f feed.Feed
	r := new(storetest.Recorder)
	f.Probe("too early")
	for range 1000 {
		f.Begin(r)
		begun := make(chan struct{})
		var done atomic.Bool
		go f.Report(func(driver.Scheduler) {
			close(begun)
			runtime.Gosched()
			done.Store(true)
		})
		<-begun
		if f.End(); !done.Load() {
			t.Fatal("End returned during a report")
		}
		f.Probe("too late")
	}
	if n := len(r.Reports()); n != 0 {
		t.Errorf("%d reports, want none: %v", n, r.Reports()[0])
	}
}

// The test checks the ranges before, during and after Deliver.
func TestUnreported_WithoutDeliver_IsEverything(t *testing.T) {
	var f feed.Feed
	all, left := f.Unreported(), feed.Everything(7)
	f.SetLeft(left)
	f.Begin(new(storetest.Recorder))
	begun := f.Unreported()
	f.SetLeft(left)
	during := f.Unreported()
	f.End()
	if diff := cmp.Diff([]feed.Ranges{all, left, all}, []feed.Ranges{begun, during, f.Unreported()}); diff != "" {
		t.Errorf("unreported ranges (-want +got):\n%s", diff)
	}
}
