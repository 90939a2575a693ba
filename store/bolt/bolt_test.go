package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/storetest"
)

// open opens the file in dir. At the end of the test it is verified, if the test has closed it.
func open(t *testing.T, dir string) store.Store {
	path := filepath.Join(dir, "storage.db")
	s := openUnverified(t, path)
	t.Cleanup(func() {
		_ = s.Close()
		verify(t, path)
	})
	return s
}

// openUnverified opens a file that a test damages.
func openUnverified(t *testing.T, path string) store.Store {
	s, err := bolt.Open(path)
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
