package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// No report may be lost or arrive after Deliver has returned. Some reports must be repeated, and
// some must be late.
func TestNoisy_Reports_AreRepeatedAndReordered(t *testing.T) {
	const n = 200
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel("")
			noisy := storetest.Noisy(m, seed)
			ctx, cancel := context.WithCancel(t.Context())
			w := driver.Webhook{ID: "webhook", Account: "acct", Events: []driver.EventType{"tests.done"}}
			w.Active = true
			must(t, m.CreateWebhook(ctx, w, driver.CreateOptions{}))
			var reports storetest.Recorder
			returned := make(chan error, 1)
			go func() { returned <- noisy.Deliver(ctx, &reports) }()
			synctest.Wait()
			for i := range n {
				_, err := m.Enqueue(ctx, driver.EncodedEvent{ID: fmt.Sprint(i), Account: "acct", Type: "tests.done"})
				must(t, err)
				_, err = m.UpdateWebhook(ctx, "acct", "webhook", func(*driver.Webhook, *audit.Entry) error { return nil })
				must(t, err)
			}
			seen := func() (deliveries, adds, versions int, ordered bool) {
				known := map[uint64]bool{}
				last := uint64(0)
				ordered = true
				for _, r := range reports.Reports() {
					switch r.Method {
					case "Webhook":
						versions = max(versions, int(r.Webhook.Version))
					case "Add":
						ordered = ordered && r.Ref.Number > last
						last = r.Ref.Number
						known[r.Ref.Number] = true
						adds++
					}
				}
				return len(known), adds, versions, ordered
			}
			unreported, err := noisy.Unreported(ctx, "webhook")
			must(t, err)
			if deliveries, _, _, _ := seen(); deliveries == n || deliveries+unreported.Pending != n {
				t.Errorf("%d deliveries reported at once and %d not, want %d in all", deliveries, unreported.Pending, n)
			}
			time.Sleep(time.Second)
			deliveries, adds, versions, ordered := seen()
			if deliveries != n || adds <= n || versions != n+1 || ordered {
				t.Errorf("%d deliveries in %d reports, in order: %v, versions up to %d; want %d, more, false, %d", deliveries, adds, ordered, versions, n, n+1)
			}
			cancel()
			if err := <-returned; err != context.Canceled {
				t.Errorf("Deliver = %v", err)
			}
			reports.End()
			time.Sleep(time.Hour)
			for _, fault := range reports.Faults() {
				t.Error(fault)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
