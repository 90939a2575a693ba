package memory_test

import (
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New() })
}
