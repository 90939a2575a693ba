package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store"
)

// commit commits a batch and finishes it.
func (w *writer) commit(b *batch) error {
	if err := b.flush(); err != nil {
		return fmt.Errorf("write %s: %w", w.db.Path(), err)
	}
	landing := make(chan struct{})
	w.landing.Store(&landing)
	defer close(landing)
	id := b.tx.ID()
	err := w.commitTx(b.tx)
	if err == nil {
		b.finish()
		return nil
	}
	seen := w.seen(id)
	if seen {
		b.finish() // the queue must follow what readers of the file see
	}
	if seen || !harmless(err) {
		w.fail(err)
	}
	return fmt.Errorf("commit to %s: %w", w.db.Path(), err)
}

func (w *writer) commitTx(tx *bbolt.Tx) (err error) {
	defer recovered(&err)
	if around := w.around.Load(); around != nil && *around != nil {
		return (*around)(tx.Commit)
	}
	return tx.Commit()
}

func init() {
	boltfault.Around = func(s any, around func(func() error) error) { s.(*Store).writer.around.Store(&around) }
	boltfault.SetClock = func(s any, by time.Duration) { s.(*Store).clock.Set(by) }
}

// seen reports whether the transaction is what a reader sees.
func (w *writer) seen(id int) bool {
	tx, err := w.db.Begin(false)
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	return tx.ID() >= id
}

// harmless reports whether a commit that failed, and that readers do not see, has left
// the file as it was: the system refused to write a page or to let the file grow, as
// on a full disk. A page that was written is of no use to anybody without the meta page.
//
// A sync that failed is not harmless. The system may have dropped what it could not
// write, and the next sync succeeds without it.
func harmless(err error) bool {
	var refused *fs.PathError
	return errors.As(err, &refused) && refused.Op == "write" || strings.HasPrefix(err.Error(), "file resize error: ")
}

// fail ends all writing, because of a commit whose effect on the disk nobody knows.
// Another one could overwrite what the file needs if that commit is lost after all.
func (w *writer) fail(cause error) {
	err := fmt.Errorf("%s: %w since a commit failed at %s: %v", w.db.Path(), store.ErrReadOnly, time.Now().UTC().Format(time.RFC3339), cause)
	w.fault.Store(&err)
}

// Halted implements [webhooks.Halter].
func (s *Store) Halted() error { return s.writer.broken() }

// broken returns why nothing is written any more, or nil.
func (w *writer) broken() error {
	if err := w.fault.Load(); err != nil {
		return *err
	}
	return nil
}
