package storetest

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
)

// RunDeliveries runs only the tests of driver.Deliveries.
func RunDeliveries(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	runGroups(t, open, deliveryGroups)
}

// RunFailingDeliveries runs only the tests for reports of steps whose commits fail.
func RunFailingDeliveries(t *testing.T, open func(t *testing.T) FailingStore) {
	t.Helper()
	failingReports(t, open)
}

// SetEventTimeout sets how long the suite waits for an expected event.
func SetEventTimeout(d time.Duration) { eventTimeout = d }
