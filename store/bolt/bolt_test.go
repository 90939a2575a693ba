package bolt_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/storetest"
)

// open opens the file in dir. At the end of the test, it verifies the file, makes a backup and
// restores it. The backup is made by the store if it is still open, and is otherwise a copy of the
// closed file.
func open(t *testing.T, dir string) store.Store { return openWith(t, dir) }

// openWith is open with options.
func openWith(t *testing.T, dir string, options ...bolt.Option) store.Store {
	path := filepath.Join(dir, "storage.db")
	s := openUnverified(t, path, options...)
	t.Cleanup(func() {
		if err := s.(*bolt.Store).Halted(); err == nil {
			var copied bytes.Buffer
			if _, err := s.(*bolt.Store).Backup(context.Background(), &copied); err == nil {
				backup := filepath.Join(t.TempDir(), "backup.db")
				noError(t, os.WriteFile(backup, copied.Bytes(), 0o600))
				wantRestores(t, backup)
			}
		}
		_ = s.Close()
		wantRestores(t, path)
	})
	return s
}

// openUnverified opens a file without verifying it at the end, because the test damages it.
func openUnverified(t *testing.T, path string, options ...bolt.Option) store.Store {
	s, err := bolt.Open(path, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
}

func TestDurability(t *testing.T) {
	t.Parallel()
	storetest.RunDurable(t, open)
}
