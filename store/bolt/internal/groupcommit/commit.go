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

// commit commits a transaction of the given number of steps, and then runs its AfterCommit
// functions.
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
		tx.apply() // memory must match the file that readers see
	}
	switch {
	case synced && !seen:
		return errInterrupted
	case synced:
		// The commit is on disk, but bbolt has rolled it back in memory. It therefore treats some
		// pages as free although readers of the previous commit may still use them.
		w.halt(err)
		return nil
	case seen || !harmless(err):
		w.halt(err)
		return fmt.Errorf("commit to %s: %w: %w", w.db.Path(), auth.ErrInterrupted, err)
	}
	return fmt.Errorf("commit to %s: %w: %w", w.db.Path(), auth.ErrUnavailable, err)
}

// maxInterrupted is the number of consecutive commits interrupted by signals after which the
// Writer halts.
const maxInterrupted = 100

// errInterrupted is returned for a commit whose sync was interrupted by a signal and succeeded when
// retried. fdatasync may be interrupted on a network file system. Nothing is lost, and readers have
// not seen the commit, so its steps can run again.
var errInterrupted = errors.New("a signal interrupted the sync; retrying the steps")

// sync syncs the file. If a signal interrupts the sync, it tries again.
func (w *Writer[B]) sync() (err error) {
	for range maxInterrupted {
		if err = w.db.Sync(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
	return err
}

func (w *Writer[B]) observed(tx *Tx, steps int) error {
	if w.config.Committed == nil {
		return w.commitTx(tx)
	}
	begun := time.Now()
	err := w.commitTx(tx)
	w.config.Committed(steps, time.Since(begun), err)
	return err
}

func (w *Writer[B]) commitTx(tx *Tx) (err error) {
	defer catchPanic(&err)
	return w.config.Commit(tx.Bolt)
}

// seen reports whether readers see the transaction with that ID.
func (w *Writer[B]) seen(id int) bool {
	tx, err := w.db.Begin(false)
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	return tx.ID() >= id
}

// harmless reports whether a failed commit that readers do not see has left the file unchanged.
// That is so if the system refused to write a page or to extend the file, as on a full disk, or if
// the file would have exceeded bbolt's limit. Pages that were already written are not in use,
// because the meta page was not written.
//
// A failed sync is not harmless. The system may have dropped the pages that it could not write,
// and the next sync may succeed without them.
func harmless(err error) bool {
	var refused *fs.PathError
	return errors.As(err, &refused) && refused.Op == "write" || errors.Is(err, bbolterrors.ErrMaxSizeReached) || strings.HasPrefix(err.Error(), "file resize error: ")
}

// halt ends all writing after a commit whose effect on the disk is unknown. If that commit is lost,
// the file still needs pages that a later commit would overwrite.
func (w *Writer[B]) halt(cause error) {
	err := fmt.Errorf("%s: %w: commit failed at %s: %v", w.db.Path(), store.ErrReadOnly, time.Now().UTC().Format(time.RFC3339), cause)
	w.fault.Store(&err)
}

// Halted returns the error that ended all writing, which wraps [store.ErrReadOnly], or nil.
func (w *Writer[B]) Halted() error {
	if err := w.fault.Load(); err != nil {
		return *err
	}
	return nil
}
