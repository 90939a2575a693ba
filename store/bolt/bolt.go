package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/internal/queue"
	"github.com/storageapi/storageapi/store"
)

// lockTimeout is how long Open waits for another process to let go of the file.
const lockTimeout = 500 * time.Millisecond

// ErrLocked is wrapped by the error of [Open] if the file is open already, in
// this process or another.
var ErrLocked = errors.New("in use by another process, or opened twice in this one")

// A Store keeps everything in one bbolt file. It implements [store.Store].
type Store struct {
	db     *bbolt.DB
	writer writer
	queue  queue.Queue

	// For steps of the writer only.
	subscriptions subscriptions
	newestEvent   []byte // no key in bucketEventIDs is greater; it need not be there
}

var _ store.Store = (*Store)(nil)

// Open opens the file at path, or creates it with mode 0600 in a directory that
// exists. Errors name the file; they wrap [ErrLocked] if it is open elsewhere,
// after half a second, and [ErrSchema] if it is not ours or from a newer
// version. Deliveries that were leased when the file was last used are claimable
// at once.
func Open(path string) (*Store, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockTimeout,
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true, // they cost a third of a lookup
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = ErrLocked
	}
	var named *fs.PathError
	if errors.As(err, &named) && named.Path == path {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &Store{db: db}
	s.writer.db, s.writer.undone = db, s.subscriptions.forgetAll
	if err := s.prepare(); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// prepare brings the file and the queue to where work can begin.
func (s *Store) prepare() (err error) {
	defer recovered(&err)
	if err := checkSchema(s.db); err != nil {
		return err
	}
	if err := s.loadNewestEvent(); err != nil {
		return err
	}
	if err := s.loadQueue(); err != nil {
		return fmt.Errorf("read the deliveries owed: %w", err)
	}
	return nil
}

// Close waits for the steps under way and closes the file. From then on every
// method returns [store.ErrClosed]; closing again does nothing.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.db.Path(), err)
	}
	return nil
}

// view begins a short read transaction, to be ended by its Rollback.
func (s *Store) view(ctx context.Context) (*bbolt.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, closed(err)
	}
	return tx, nil
}

// done ends a read transaction, and makes an error of a panic in it.
func (s *Store) done(tx *bbolt.Tx, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read %s: panic: %v", s.db.Path(), p)
	}
	_ = tx.Rollback()
}

// closed turns bbolt's error for a closed file into ours.
func closed(err error) error {
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}
