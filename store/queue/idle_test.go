package queue

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// crowd adds a delivery to a webhook of each of as many accounts, and delivers it or
// drops the webhook.
func crowd(q *Queue, accounts int, drop bool) {
	for i := range accounts {
		q.Add(Pending{Webhook: fmt.Sprintf("wh_%026d", i), Account: fmt.Sprintf("acct_%026d", i), Seq: uint64(i), Due: start})
	}
	for {
		claimed, _ := q.Claim(start, webhooks.Claim{Limit: 1000, Cap: each(1), Lease: time.Hour})
		if len(claimed) == 0 {
			return
		}
		for _, c := range claimed {
			if drop {
				q.Drop(c.Webhook)
			} else {
				q.Done(c.Token)
			}
		}
	}
}

// TestIdleAccountsTakeNoMemory: what has nothing pending is forgotten, whether its
// webhook is there or was dropped, also where others have something pending all the time.
func TestIdleAccountsTakeNoMemory(t *testing.T) {
	const accounts, limit = 50_000, 8 // bytes an account
	for _, drop := range []bool{false, true} {
		var q Queue
		add(&q, "busy", accounts, at(time.Hour))
		before := heapInUse()
		crowd(&q, accounts, drop)
		if got := (heapInUse() - before) / accounts; got > limit {
			t.Errorf("%d bytes an account are left, drop = %v; want at most %d", got, drop, limit)
		}
		runtime.KeepAlive(&q)
	}
}

// BenchmarkIdle measures the memory that an account leaves behind when its webhook is
// has nothing pending any more.
func BenchmarkIdle(b *testing.B) {
	const accounts = 200_000
	for _, drop := range []bool{false, true} {
		b.Run(fmt.Sprintf("dropped=%v", drop), func(b *testing.B) {
			var left int64
			for b.Loop() {
				var q Queue
				before := heapInUse()
				crowd(&q, accounts, drop)
				left = heapInUse() - before
				runtime.KeepAlive(&q)
			}
			b.ReportMetric(float64(left)/accounts, "bytes/account")
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
