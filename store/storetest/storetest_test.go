package storetest_test

import (
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

// TestDurable runs RunDurable on stores that are kept between being closed and
// opened, which is all that it can see of a disk.
func TestDurable(t *testing.T) {
	stores := map[string]*kept{}
	storetest.RunDurable(t, func(_ *testing.T, dir string) store.Store {
		if stores[dir] == nil {
			stores[dir] = &kept{memory.New()}
		}
		return stores[dir]
	})
}

// A kept store survives Close.
type kept struct{ *memory.Store }

func (k *kept) Close() error {
	storetest.WorkerOf(k).Close()
	return nil
}
