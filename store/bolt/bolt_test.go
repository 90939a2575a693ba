package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/storetest"
)

func open(t *testing.T, dir string) store.Store {
	s, err := bolt.Open(filepath.Join(dir, "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
}

func TestDurability(t *testing.T) {
	storetest.RunDurable(t, open)
}
