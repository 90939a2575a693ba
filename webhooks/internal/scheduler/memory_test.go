package scheduler

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// crowd adds the given number of webhooks, in different accounts, with the same number of
// deliveries each.
func crowd(s *Scheduler, webhooks, each int, due time.Time) {
	for i := range webhooks {
		p := Pending{Due: due, Webhook: Webhook{
			ID: fmt.Sprintf("wh_%026d", i), Account: fmt.Sprintf("acct_%026d", i), Version: 1, On: true, Standing: Proven,
		}}
		for n := range each {
			p.Number = uint64(n)
			s.Add([]Pending{p})
		}
	}
}

// The memory per delivery includes a share of the webhook's memory.
func TestAdd_ManyDeliveries_TakeAtMost60BytesEach(t *testing.T) {
	const webhooks, each = 1000, 100
	for _, after := range []time.Duration{0, time.Hour} {
		s := New(Config{Slots: 256, PerWebhook: 16, PerAccount: 64, Timeout: time.Second})
		before := heapInUse()
		crowd(s, webhooks, each, time.Now().Add(after))
		if got := (heapInUse() - before) / (webhooks * each); got > 60 {
			t.Errorf("due in %v: %d bytes per waiting delivery, want at most 60", after, got)
		}
		runtime.KeepAlive(s)
	}
}

// Maps do not shrink, so the space of their entries stays, for later ones.
func TestForget_ManyAccounts_FreesTheirMemory(t *testing.T) {
	const accounts, most = 20_000, 100
	s := New(Config{Slots: 256, PerWebhook: 16, PerAccount: 64, Timeout: time.Second})
	s.Add([]Pending{{Webhook: Webhook{ID: "busy", Account: "busy", On: true}, Due: time.Now().Add(time.Hour)}})
	before := heapInUse()
	crowd(s, accounts, 1, time.Now())
	for i := range accounts {
		s.Forget(fmt.Sprintf("wh_%026d", i), "", 0)
	}
	if got := (heapInUse() - before) / accounts; got > most {
		t.Errorf("%d bytes per account are left, want at most %d", got, most)
	}
	runtime.KeepAlive(s)
}
