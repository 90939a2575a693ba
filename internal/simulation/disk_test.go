package simulation_test

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store"
)

// A disk holds the file of a store, and can be made to fail.
type disk struct {
	path string

	faults boltfault.Disk

	mu    sync.Mutex
	store store.Store // the open store on the disk; nil means none
	fails string      // the kind of failure; empty means none
	descriptor
}

// The ways in which a disk can fail.
const (
	full       = "full"        // writes fail, and nothing is lost
	readOnly   = "read-only"   // the system rejects writes, see descriptor
	syncBefore = "sync before" // one commit fails without an effect
	syncAfter  = "sync after"  // one commit fails after it has taken effect
)

var (
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC}
	errSync = errors.New("the disk failed")
)

// holds sets the open store on the disk; nil means none.
func (d *disk) holds(s store.Store) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store = s
}

// fail makes commits fail until mend is called. It calls failed for each commit that a full disk
// rejects, and for the first failed sync. It returns false if commits cannot be made to fail now.
func (d *disk) fail(how string, failed func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store == nil || d.fails != "" {
		return false
	}
	var once sync.Once
	switch how {
	case full:
		d.faults.Around(func(func() error) error { failed(); return errFull })
	case readOnly:
		if !d.misdirect(d.path) {
			return false
		}
	case syncBefore, syncAfter:
		d.faults.Around(func(commit func() error) (err error) {
			err = errSync
			once.Do(func() {
				if failed(); how == syncAfter {
					err = errors.Join(err, commit())
				}
			})
			return err
		})
	}
	d.fails = how
	return true
}

// mend ends the failure.
func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails == readOnly {
		d.redirect()
	} else if d.fails != "" && d.store != nil {
		d.faults.Around(nil)
	}
	d.fails = ""
}
