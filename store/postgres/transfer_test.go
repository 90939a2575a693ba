package postgres_test

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

// The tests copy from the memory store and back, so that they compare two implementations.
func TestTransfer(t *testing.T) {
	inMemory := func(*testing.T) store.Store { return memory.New() }
	inDatabase := func(t *testing.T) store.Store { return open(t, emptySchema(t)) }
	t.Run("FromMemory", func(t *testing.T) { storetest.RunTransfer(t, inMemory, inDatabase) })
	t.Run("ToMemory", func(t *testing.T) { storetest.RunTransfer(t, inDatabase, inMemory) })
}

// A position that the database could not parse is refused before a statement is sent.
func TestExport_PositionOfAnotherStore_IsRefused(t *testing.T) {
	s := open(t, inSchema(t))
	for _, kind := range []string{"key", "webhook", "request", "alert", "dedup_key", "scan", "event", "recovery", "audit_entry"} {
		for _, row := range []string{"acct", "acct\x00id", "acct\x00id\x00", "acct\x00id\x00x", "acct\x00\xff\x000", "n\x00\x00\x00\x00\x00\x00\x00\x01", "a\x00b\x000\x00"} {
			after := kind + "." + base64.RawURLEncoding.EncodeToString([]byte(row))
			if _, err := s.Export(t.Context(), "", after, 9); !errors.Is(err, transfer.ErrPosition) {
				t.Errorf("Export after %s = %v, want ErrPosition", after, err)
			}
		}
	}
}
