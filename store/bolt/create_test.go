package bolt_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/store/bolt"
)

// TestCreate checks that a new file appears only when it is complete, and that no other file
// remains, even if a crash left files of an earlier attempt.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".storage.db.123"), make([]byte, 4097), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

// The test opens a new file from several goroutines. One goroutine must open it; the others must
// get an error because the file is locked.
func TestCreate_Concurrent_OneGetsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	var mu sync.Mutex
	var opened []*bolt.Store
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if s, err := bolt.Open(path); err == nil {
				mu.Lock()
				defer mu.Unlock()
				opened = append(opened, s)
			}
		})
	}
	all.Wait()
	if len(opened) != 1 {
		t.Errorf("%d opened it", len(opened))
	}
	for _, s := range opened {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
