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

// SetPatience sets how long the suite waits for what has to happen.
func SetPatience(d time.Duration) { patience = d }
