package bolt_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/storetest"
)

var (
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC}
	errDisk = syscall.EIO
)

// TestFailingCommits has commits fail in the ways they can.
func TestFailingCommits(t *testing.T) {
	for name, around := range map[string]func(commit func() error) error{
		"full disk": func(func() error) error { return errFull },
		"full disk, now and then": func(commit func() error) error {
			if rand.N(3) == 0 {
				return errFull
			}
			return commit()
		},
		"a sync of data fails": func(func() error) error { return errDisk },
		"the last sync fails":  func(commit func() error) error { return errors.Join(commit(), errDisk) },
		"the disk hangs, and then fails": func(func() error) error {
			time.Sleep(40 * time.Millisecond)
			return errDisk
		},
		"the disk hangs, and then the last sync fails": func(commit func() error) error {
			time.Sleep(40 * time.Millisecond)
			return errors.Join(commit(), errDisk)
		},
		"bbolt panics":                    func(func() error) error { panic("damaged") },
		"bbolt panics after it committed": func(commit func() error) error { _ = commit(); panic("damaged") },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunFailing(t, func(t *testing.T) storetest.FailingStore { return failingStore(t, around) })
		})
	}
}

func failingStore(t *testing.T, around func(commit func() error) error) storetest.FailingStore {
	dir := t.TempDir()
	s := open(t, dir)
	return storetest.FailingStore{
		Store: s,
		Fail:  func() { boltfault.Around(s, around) },
		Mend: func() store.Store {
			boltfault.Around(s, nil)
			err := s.DeleteKey(t.Context(), "nobody", "nothing", nil)
			if !errors.Is(err, store.ErrReadOnly) && !errors.Is(err, store.ErrClosed) {
				return s
			}
			_ = s.Close()
			again, err := bolt.Open(filepath.Join(dir, "storage.db"))
			if err != nil {
				t.Fatal(err)
			}
			return again
		},
	}
}
