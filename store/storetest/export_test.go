package storetest

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
)

// RunDeliveries runs the tests of webhooks.Deliveries alone.
func RunDeliveries(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	runGroups(t, open, deliveryGroups)
}

// RunFailingDeliveries runs the tests of reports of steps whose commits fail alone.
func RunFailingDeliveries(t *testing.T, open func(t *testing.T) FailingStore) {
	t.Helper()
	failingReports(t, open)
}

// SetPatience sets how long the suite waits for what has to happen.
func SetPatience(d time.Duration) { patience = d }
