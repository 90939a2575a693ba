package storetest_test

import (
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

// The stores survive Close but have no disk, so the test covers only closing and reopening.
func TestRunDurable_StoreThatSurvivesClose_Passes(t *testing.T) {
	stores := map[string]*kept{}
	storetest.RunDurable(t, func(_ *testing.T, dir string) store.Store {
		if stores[dir] == nil {
			stores[dir] = &kept{memory.New()}
		}
		return stores[dir]
	})
}

type kept struct{ *memory.Store }

func (k *kept) Close() error {
	storetest.WorkerOf(k).Close()
	return nil
}
