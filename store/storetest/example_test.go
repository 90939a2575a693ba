package storetest_test

import (
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

// A backend's test calls Run with a function that opens an empty store for each subtest.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		storetest.Run(t, func(t *testing.T) store.Store { return memory.New() })
	}
	// Output:
}
