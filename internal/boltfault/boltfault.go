// Package boltfault lets tests make commits of a bolt file fail, combine given steps into one
// commit, and set the file's clock.
package boltfault

import (
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/boltoption"
)

// A Disk commits the transactions of the files that were opened with its Option. The zero Disk
// commits as usual.
type Disk struct {
	around atomic.Pointer[func(commit func() error) error]
}

// Option is a bolt.Option.
func (d *Disk) Option(o *boltoption.Options) { o.System.Commit = d.Commit }

// Commit commits a transaction.
func (d *Disk) Commit(tx *bbolt.Tx) error {
	if around := d.around.Load(); around != nil && *around != nil {
		return (*around)(tx.Commit)
	}
	return tx.Commit()
}

// Around makes the Disk call around in place of each commit. around may fail before or after it
// calls commit, delay it, or not call it at all. Nil restores usual commits.
//
// The store continues after an error that wraps an [io/fs.PathError] with Op "write", as on a full
// disk, provided that nothing was committed. After any other error the store is read-only.
func (d *Disk) Around(around func(commit func() error) error) { d.around.Store(&around) }

// SystemClock returns a bolt.Option that replaces the store's system clock with now. Tests in a
// testing/synctest bubble need it, because the bubble's clock cannot jump.
func SystemClock(now func() time.Time) func(*boltoption.Options) {
	return func(o *boltoption.Options) { o.System.Now = now }
}
