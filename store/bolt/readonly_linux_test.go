package bolt_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/store/bolt"
)

// TestReadOnlyFile runs on a thread with the file system rights of the user nobody, because root
// may write to any file.
func TestReadOnlyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "storage.db")
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				t.Error(err)
				return
			}
		}
		s, err := bolt.Open(path)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open = %v, want a permission error that names the file", err)
		}
	}()
	<-done
}
