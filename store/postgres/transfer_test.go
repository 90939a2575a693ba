package postgres_test

import (
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

// From memory, and back: what both sides tell alike is not of one implementation.
func TestTransfer(t *testing.T) {
	inMemory := func(*testing.T) store.Store { return memory.New() }
	inDatabase := func(t *testing.T) store.Store { return open(t, emptySchema(t)) }
	t.Run("FromMemory", func(t *testing.T) { storetest.RunTransfer(t, inMemory, inDatabase) })
	t.Run("ToMemory", func(t *testing.T) { storetest.RunTransfer(t, inDatabase, inMemory) })
}
