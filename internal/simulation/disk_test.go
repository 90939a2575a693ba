package simulation_test

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store"
)

// A disk is what a file is on.
type disk struct {
	path string

	mu    sync.Mutex
	store store.Store // on it, open; nil: none
	fails string      // how; empty: it does not
	descriptor
}

// The ways in which a disk can fail.
const (
	full       = "full"        // nothing is written, and nothing is lost
	readOnly   = "read-only"   // the system refuses to write: see descriptor
	syncBefore = "sync before" // one commit fails before it happened
	syncAfter  = "sync after"  // or after it has
)

var (
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC}
	errSync = errors.New("the disk failed")
)

// holds says which store is open on the disk, if any.
func (d *disk) holds(s store.Store) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store = s
}

// fail makes commits fail until mend, if they do not already. It reports whether it
// does; failed is called for each commit that fails.
func (d *disk) fail(how string, failed func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store == nil || d.fails != "" {
		return false
	}
	var once sync.Once
	switch how {
	case full:
		boltfault.Around(d.store, func(func() error) error { failed(); return errFull })
	case readOnly:
		if !d.misdirect(d.path) {
			return false
		}
	case syncBefore, syncAfter:
		boltfault.Around(d.store, func(commit func() error) (err error) {
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

// mend ends fail.
func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails == readOnly {
		d.redirect()
	} else if d.fails != "" && d.store != nil {
		boltfault.Around(d.store, nil)
	}
	d.fails = ""
}
