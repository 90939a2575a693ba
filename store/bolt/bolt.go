package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/webhooks"
)

// ErrLocked is wrapped by the error of [Open] if the file is open already, in
// this process or another.
var ErrLocked = pagefile.ErrLocked

// ErrSchema is wrapped by the error of [Open] for a bbolt file that this version
// of the package cannot use: it is of another program, of another schema, or damaged.
var ErrSchema = pagefile.ErrSchema

// A Store keeps everything in one bbolt file. It implements [store.Store].
type Store struct {
	db       *bbolt.DB
	file     *os.File         // db's, for Backup to read
	wait     time.Duration    // for the file to be closed elsewhere
	left     bool             // a file that is left may be opened
	keys     *signing.Keyring // nil: secrets are kept in plain
	observer *observer        // nil: none
	writer   *groupcommit.Writer[*batch]
	alerts   alerts

	feed       feed
	delivering chan struct{} // of one: the turn of Deliver
	closing    chan struct{} // closed by Close
	closeOnce  sync.Once
	sweeper    sweeper

	log *eventlog.Log

	// Rows that are in memory, see package mirror.
	keyRows     *keyRows
	webhookRows *webhookRows
	accountRows *accountRows
	keyCounts   counts
	madeCounts  counts // of keys that API keys have created
	requests    requests

	erasing  erasing
	parking  parking
	clock    clock.Clock
	copies   atomic.Uint64                            // of the file that were begun, and 1 for those before it was opened
	freeRoom func(*os.File) (bytes int64, known bool) // files.FreeRoom but in tests

	auditLease auditLease

	cursors cursor.Key // hides the numbers of deliveries

	// For steps of the writer only.
	recovered    []byte     // the webhook whose recovery was advanced last
	marked       clock.Mark // as it is in the file
	copiesMarked uint64     // what copies was when the clock was marked, see [Store.markCopies]
}

var (
	_ store.Store         = (*Store)(nil)
	_ webhooks.Deliveries = (*Store)(nil)
)

// An Option changes how a file is opened.
type Option func(*Store)

// Sealed encrypts the webhooks' signing secrets under the first of the keys, and decrypts with
// all of them. [Open] encrypts secrets again that are in plain text or under another of the keys: to
// replace a key put the new one before it, open the file once, and remove the old one. Free pages
// of the file may contain the old records until they are written again.
func Sealed(keys *signing.Keyring) Option { return func(s *Store) { s.keys = keys } }

// Wait lets [Open] wait for up to d where the file is still open, for a host that is started
// before its predecessor has ended: give it more than that takes to shut down. Open goes on as
// soon as the file is closed. 0 and less: it does not wait. Default: half a second.
func Wait(d time.Duration) Option { return func(s *Store) { s.wait = d } }

// Open opens the file at path, or creates it with mode 0600 in a directory that
// exists. Errors name the file; they wrap [ErrLocked] if it is open elsewhere,
// for longer than [Wait] says, [ErrSchema] if it is not ours, of another schema or damaged, [ErrLeft] if it was left for another store, and
// [signing.ErrSealed] if it is sealed under a key that was not given. A file that
// cannot be opened is not held open, nor locked. What is pending is read once deliveries are
// claimed or reported, and takes no part in opening.
func Open(path string, options ...Option) (*Store, error) {
	if err := create(path); err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	s := &Store{
		wait: pagefile.DefaultWait, freeRoom: files.FreeRoom,
		keyRows: newKeyRows(defaultCachedKeys), webhookRows: newWebhookRows(), accountRows: newAccountRows(),
		keyCounts: newCounts(nil), madeCounts: newCounts(madeByKey), requests: newRequests(),
	}
	s.delivering, s.sweeper.turn, s.closing = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	for _, option := range options {
		option(s)
	}
	// What is damaged may point outside of the file. prepare and openFile make errors of panics.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	until := time.Now().Add(s.wait)
	if err := pagefile.Precheck(path, until); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db, file, err := pagefile.Open(path, until, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	var named *fs.PathError
	if errors.As(err, &named) && named.Path == path {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s.db, s.file = db, file
	removeBackups(db.Path())
	s.parking.pageSize = db.Info().PageSize
	if err := s.prepare(file); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// prepare makes the file ready for use.
func (s *Store) prepare(file *os.File) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = pagefile.Damaged(p)
		}
	}()
	if err := initialize(s.db); err != nil {
		return err
	}
	if !s.left {
		if err := checkLeft(s.db); err != nil {
			return err
		}
	}
	if err := pagefile.Confirm(file, s.db.Info().PageSize); err != nil {
		return err
	}
	if err := s.loadErasing(); err != nil {
		return err
	}
	if err := s.loadCursors(); err != nil {
		return err
	}
	log, logWriter, err := eventlog.Open(s.db, eventlog.Options{
		Clock: &s.clock, Cursors: s.cursors, WebhookIDs: bucketWebhookIDs, Erasing: s.erasing.has,
	})
	if err != nil {
		return fmt.Errorf("read the ids of the newest events: %w", err)
	}
	s.log = log
	s.writer = groupcommit.New(s.db, func(tx *groupcommit.Tx) *batch { return s.newBatch(tx, logWriter) }, func(done bool) {
		logWriter.Ended(done)
		s.ended(done)
	})
	if s.observer != nil {
		s.writer.Observe(s.observer.committed)
	}
	if err := s.reseal(); err != nil {
		return err
	}
	if err := s.parking.load(s); err != nil {
		return err
	}
	return s.loadClock(logWriter.LastPublished())
}

// ended is called between transactions.
func (s *Store) ended(done bool) {
	s.parking.ended(done)
	outcome := mirror.Applied
	switch {
	case !done && s.writer.Halted() != nil:
		outcome = mirror.Unknown
	case !done:
		outcome = mirror.Undone
	}
	s.keyRows.End(outcome)
	s.webhookRows.End(outcome)
	s.accountRows.End(outcome)
	s.keyCounts.rows.End(outcome)
	s.madeCounts.rows.End(outcome)
	s.requests.rows.End(outcome)
}

// Close waits for the steps under way, including those that wait for a commit, writes
// alerts that are in memory only, and closes the file. From then on every method
// returns [store.ErrClosed]; closing again does nothing. While the disk hangs in a
// commit, Close waits for that.
func (s *Store) Close() error {
	path := s.db.Path()
	s.closeOnce.Do(func() { close(s.closing) })
	kept := s.keepAlerts()
	s.writer.Close()
	if s.observer != nil {
		s.observer.queue.Close()
	}
	err := errors.Join(kept, s.db.Close())
	s.keyRows.Clear() // after the last read
	if err != nil {
		return fmt.Errorf("close %s: %w", path, err)
	}
	return nil
}

// Halted returns why the store writes nothing until it is opened again; nil if it writes.
func (s *Store) Halted() error { return s.writer.Halted() }

// Capabilities implements [store.Store].
func (s *Store) Capabilities() capability.Set {
	return capability.Set{Halted: s.Halted, Doubt: s.Doubt, FileSize: s.FileSize, Backup: s.Backup, Leave: s.Leave}
}

func init() {
	boltfault.Around = func(s any, around func(func() error) error) { s.(*Store).writer.Around(around) }
	boltfault.SetClock = func(s any, by time.Duration) { s.(*Store).clock.Set(by) }
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

// done ends a read transaction, and makes an error of a panic in it. faults is what [catchFaults]
// returned before anything was read.
func (s *Store) done(tx *bbolt.Tx, faults bool, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read %s: panic: %v", s.db.Path(), p)
	}
	_ = tx.Rollback()
	debug.SetPanicOnFault(faults)
}

// catchFaults has faults of this goroutine panic, instead of ending the process: a damaged page may lead outside
// of the file, which bbolt maps into memory. It returns whether they did before.
func catchFaults() (faults bool) { return debug.SetPanicOnFault(true) }

// closed turns bbolt's error for a closed file into ours.
func closed(err error) error {
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

// An observer tells an Observer of commits.
type observer struct {
	told  func(observe.Commit)
	queue *observing.Queue
}

// Observe has o told of each commit of the file: see [observe.Observer.Committed]. The logger
// is told of its failures; nil is [slog.Default]. storageapi.NewHandler does so with the file that it opens.
func Observe(o observe.Observer, logger *slog.Logger) Option {
	if o.Committed == nil {
		return func(*Store) {}
	}
	if logger == nil {
		logger = slog.Default()
	}
	return func(s *Store) { s.observer = &observer{o.Committed, observing.NewQueue(logger, o.Lost)} }
}

func (o *observer) committed(steps int, took time.Duration, err error) {
	c := observe.Commit{Steps: steps, Duration: took, Err: err}
	o.queue.Add(func() { o.told(c) })
}
