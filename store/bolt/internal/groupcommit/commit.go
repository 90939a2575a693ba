package groupcommit

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
)

// commit commits a transaction of so many steps, and applies it.
func (w *Writer[B]) commit(tx *Tx, batch B, steps int) error {
	if err := batch.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", w.db.Path(), err)
	}
	applied := make(chan struct{})
	w.applied.Store(&applied)
	defer close(applied)
	id := tx.Bolt.ID()
	err := w.observed(tx, steps)
	if err == nil {
		tx.apply()
		w.interrupted = 0
		return nil
	}
	seen, synced := w.seen(id), false
	if errors.Is(err, syscall.EINTR) && w.interrupted < maxInterrupted {
		w.interrupted++
		synced = w.sync() == nil
	}
	if seen {
		tx.apply() // memory must follow what readers of the file see
	}
	switch {
	case synced && !seen:
		return errInterrupted
	case synced:
		// It is done. But bbolt has rolled it back in memory, and takes pages for free that readers of the commit before may read.
		w.halt(err)
		return nil
	case seen || !harmless(err):
		w.halt(err)
		return fmt.Errorf("commit to %s: %w: %w", w.db.Path(), auth.ErrInterrupted, err)
	}
	return fmt.Errorf("commit to %s: %w: %w", w.db.Path(), auth.ErrUnavailable, err)
}

// maxInterrupted is how many commits one after the other may be interrupted before that is an error.
const maxInterrupted = 100

// errInterrupted is the error of a commit whose sync was interrupted by a signal, as fdatasync may be on a network's
// file system, and has been repeated: nothing is lost, readers do not see the commit, and its steps run again.
var errInterrupted = errors.New("a signal interrupted the sync; the steps run again")

// sync syncs the file, however often it is interrupted.
func (w *Writer[B]) sync() (err error) {
	for range maxInterrupted {
		if err = w.db.Sync(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
	return err
}

// observed is commitTx that is observed.
func (w *Writer[B]) observed(tx *Tx, steps int) error {
	if w.committed == nil {
		return w.commitTx(tx)
	}
	begun := time.Now()
	err := w.commitTx(tx)
	w.committed(steps, time.Since(begun), err)
	return err
}

func (w *Writer[B]) commitTx(tx *Tx) (err error) {
	defer recovered(&err)
	if around := w.around.Load(); around != nil && *around != nil {
		return (*around)(tx.Bolt.Commit)
	}
	return tx.Bolt.Commit()
}

// Around has around called with each commit from now on, instead of the commit, so that
// tests can make it fail. Nil ends that.
func (w *Writer[B]) Around(around func(commit func() error) error) { w.around.Store(&around) }

// seen reports whether readers see the transaction.
func (w *Writer[B]) seen(id int) bool {
	tx, err := w.db.Begin(false)
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	return tx.ID() >= id
}

// harmless reports whether a commit that failed, and that readers do not see, has left
// the file as it was: the system refused to write a page or to let the file grow, as
// on a full disk, or it would have grown beyond bbolt's limit. Pages that were written are
// unused without the meta page.
//
// A sync that failed is not harmless. The system may have dropped what it could not
// write, and the next sync succeeds without it.
func harmless(err error) bool {
	var refused *fs.PathError
	return errors.As(err, &refused) && refused.Op == "write" || errors.Is(err, bbolterrors.ErrMaxSizeReached) || strings.HasPrefix(err.Error(), "file resize error: ")
}

// halt ends all writing, because of a commit whose effect on the disk is unknown.
// Another one could overwrite what the file needs if that commit is lost after all.
func (w *Writer[B]) halt(cause error) {
	err := fmt.Errorf("%s: %w since a commit failed at %s: %v", w.db.Path(), store.ErrReadOnly, time.Now().UTC().Format(time.RFC3339), cause)
	w.fault.Store(&err)
}

// Halted returns why nothing is written any more, an error that wraps
// [store.ErrReadOnly], or nil.
func (w *Writer[B]) Halted() error {
	if err := w.fault.Load(); err != nil {
		return *err
	}
	return nil
}
