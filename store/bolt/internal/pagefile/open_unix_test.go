//go:build unix

package pagefile_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// A child process that is being started holds copies of all descriptors. These copies must not keep
// a file locked after it was opened for reading and closed.
func TestClose_ChildHoldsDescriptor_FileIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	open := func(options *bbolt.Options) (close func(), descriptor int) {
		t.Helper()
		db, file, err := pagefile.Open(path, time.Now(), options)
		if err != nil {
			t.Fatal(err)
		}
		return func() { _ = pagefile.Close(db, file) }, int(file.Fd())
	}
	create, _ := open(&bbolt.Options{})
	create()
	read, descriptor := open(&bbolt.Options{ReadOnly: true})
	copied, err := syscall.Dup(descriptor)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(copied) }()
	read()
	write, _ := open(&bbolt.Options{})
	write()
}
