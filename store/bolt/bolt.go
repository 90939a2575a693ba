package bolt

import (
	"context"
	"crypto/subtle"
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

	"github.com/storageapi/storageapi/internal/boltoption"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/alertcache"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/feed"
	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
)

// ErrLocked is wrapped by the error of [Open] if the file is already open, in this process or
// another.
var ErrLocked = pagefile.ErrLocked

// ErrSchema is wrapped by the error of [Open] for a bbolt file that this version of the package
// cannot use, because it belongs to another program, has another schema, or is damaged.
var ErrSchema = pagefile.ErrSchema

// An engine stores everything in one bbolt file.
type engine struct {
	db       *bbolt.DB
	file     *os.File // the open file of db; Backup reads it
	options  boltoption.Options
	dataKey  *signing.DataKey // nil if secrets are stored in plain text
	observer *observer        // nil if there is no observer
	writer   *groupcommit.Writer[*batch]
	alerts   *alertcache.Cache

	feed       feed.Feed
	delivering chan struct{} // semaphore of capacity 1, held by the running Deliver
	closing    chan struct{} // closed by Close
	closeOnce  sync.Once
	sweeper    sweeper

	log *eventlog.Log

	// Caches of rows. The documentation of package mirror has the rules for their use.
	keyRows     *keyRows
	webhookRows *webhookRows
	accountRows *accountRows
	keyCounts   counts
	requests    *requests.Requests

	erasing erasing
	parking *parking.Parking
	clock   clock.Clock
	// copies counts the copies of the file that have begun. It starts at 1, since the file may
	// have been copied before Open.
	copies atomic.Uint64

	auditLease auditLease

	cursors cursor.Key // encrypts the delivery numbers in cursors

	// Only steps may use the following fields; the writer runs one step at a time.
	lastRecovery []byte     // the webhook whose recovery advanced last
	marked       clock.Mark // the clock mark in the file
	copiesMarked uint64     // value of copies at the last mark, see [engine.markCopies]
}

var (
	_ store.Store       = (*engine)(nil)
	_ driver.Deliveries = (*engine)(nil)
)

// An Option changes how a file is opened.
type Option func(*boltoption.Options)

// Sealed encrypts the webhooks' signing secrets with a data key. The file stores the data key in
// sealed form; sealer seals and opens it. A sealer is a [signing.Keyring], or a [signing.Sealer]
// that the host implements with a key management service. [Open] calls the sealer, encrypts secrets
// that are still in plain text, and seals the data key again if the sealer reports that the seal is
// stale.
//
// To replace a key of a Keyring, put the new key before the old one, open the file once, and remove
// the old key. Opening a backup requires the key that was in use when the backup was made. Free
// pages of the file may contain secrets in plain text until they are reused. A sealed file stays
// sealed.
func Sealed(sealer signing.Sealer) Option {
	return func(o *boltoption.Options) { o.Sealer = sealer }
}

// Wait makes [Open] wait up to d while the file is open elsewhere. Use it if a host may start
// before its predecessor has ended, and choose a longer time than the shutdown takes. Open
// continues as soon as the file is closed. If d is 0 or less, Open does not wait. Default: half a
// second.
func Wait(d time.Duration) Option { return func(o *boltoption.Options) { o.Wait = d } }

func open(path string, options ...Option) (*engine, error) {
	if err := schema.CreateFile(path); err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	o := boltoption.Options{
		Wait: pagefile.DefaultWait, CachedKeys: defaultCachedKeys, Logger: slog.Default(),
		System: boltoption.System{Commit: (*bbolt.Tx).Commit, FreeRoom: files.FreeRoom},
	}
	for _, option := range options {
		option(&o)
	}
	s := &engine{
		options: o, observer: newObserver(o.Observer, o.Logger), clock: clock.Clock{Now: o.System.Now},
		keyRows: newKeyRows(o.CachedKeys), webhookRows: newWebhookRows(), accountRows: newAccountRows(),
		keyCounts: newCounts(), requests: requests.New(),
	}
	s.alerts = alertcache.New(alertcache.Options{
		Read: s.readAlert, Erasing: s.erasing.has, Halted: func() bool { return s.writer.Halted() != nil },
	})
	s.delivering, s.sweeper.turn, s.closing = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	// A damaged page may point outside the file. Reading there panics; prepare and pagefile.Open
	// turn the panic into an error.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	until := time.Now().Add(o.Wait)
	if err := pagefile.Precheck(path, until, string(schema.Spare)); err != nil {
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
	if err := s.prepare(file); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// prepare checks the open file and loads the engine's state from it.
func (s *engine) prepare(file *os.File) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = pagefile.Damaged(p)
		}
	}()
	if err := schema.Initialize(s.db); err != nil {
		return err
	}
	if !s.options.Left {
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
		Clock: &s.clock, Cursors: s.cursors, WebhookIDs: schema.WebhookIDs, Erasing: s.erasing.has,
	})
	if err != nil {
		return fmt.Errorf("read the IDs of the newest events: %w", err)
	}
	s.log = log
	if s.parking, err = parking.Open(s.db, file); err != nil {
		return err
	}
	config := groupcommit.Config[*batch]{
		Begin:  func(tx *groupcommit.Tx) *batch { return s.newBatch(tx, logWriter) },
		Commit: s.options.System.Commit,
		Ended: func(done bool) {
			logWriter.Ended(done)
			s.ended(done)
		},
	}
	if s.observer != nil {
		config.Committed = s.observer.committed
	}
	s.writer = groupcommit.New(s.db, config)
	if err := s.openDataKey(); err != nil {
		return err
	}
	if err := s.reseal(); err != nil {
		return err
	}
	return s.loadClock(logWriter.LastPublished())
}

// loadCursors reads the key that encrypts the file's cursors, or creates it. The key of a restored
// file differs from the key of its backup, so that the restored file rejects cursors issued before
// the restore.
func (s *engine) loadCursors() error {
	known := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(schema.Meta)
		known = copy(s.cursors[:], meta.Get(schema.MetaCursors)) == len(s.cursors)
		if salt := meta.Get(schema.MetaRestored); known && len(salt) == len(s.cursors) {
			subtle.XORBytes(s.cursors[:], s.cursors[:], salt)
		}
		return nil
	})
	if err != nil || known {
		return err
	}
	s.cursors = cursor.NewKey()
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(schema.Meta).Put(schema.MetaCursors, s.cursors[:]) })
}

// ended is called after each transaction, before the next one begins. done reports whether the
// transaction was committed.
func (s *engine) ended(done bool) {
	s.parking.Ended(done)
	ending := mirror.Applied
	switch {
	case !done && s.writer.Halted() != nil:
		ending = mirror.Unknown
	case !done:
		ending = mirror.Undone
	}
	s.keyRows.End(ending)
	s.webhookRows.End(ending)
	s.accountRows.End(ending)
	s.keyCounts.rows.End(ending)
	s.requests.End(ending)
}

func (s *engine) Close() error {
	path := s.db.Path()
	s.closeOnce.Do(func() { close(s.closing) })
	kept := s.keepAlerts()
	s.writer.Close()
	if s.observer != nil {
		s.observer.queue.Close()
	}
	err := errors.Join(kept, s.db.Close())
	s.keyRows.Clear() // only after the last read
	if err != nil {
		return fmt.Errorf("close %s: %w", path, err)
	}
	return nil
}

func (s *engine) Halted() error { return s.writer.Halted() }

// Capabilities implements [store.Store].
func (s *engine) Capabilities() capability.Set {
	return capability.Set{Halted: s.Halted, Doubt: s.Doubt, FileSize: s.FileSize, Backup: s.Backup, Leave: s.Leave}
}

func (s *engine) FileSize() (bytes, free int64) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, 0
	}
	return info.Size(), s.parking.FreeBytes()
}

// view begins a short read transaction. The caller must end it with [engine.done] or Rollback.
func (s *engine) view(ctx context.Context) (*bbolt.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, closed(err)
	}
	return tx, nil
}

// done ends a read transaction. If the caller panics, done turns the panic into an error. faults is
// the result of [catchFaults], which the caller calls before the first read.
func (s *engine) done(tx *bbolt.Tx, faults bool, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("read %s: panic: %v", s.db.Path(), p)
	}
	_ = tx.Rollback()
	debug.SetPanicOnFault(faults)
}

// catchFaults makes a memory fault in this goroutine panic instead of ending the process. A
// damaged page may point outside the file, which bbolt maps into memory. catchFaults returns the
// previous setting.
func catchFaults() (faults bool) { return debug.SetPanicOnFault(true) }

// closed replaces bbolt's error for a closed file with [store.ErrClosed].
func closed(err error) error {
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

// An observer reports commits to an [observe.Observer].
type observer struct {
	report func(observe.Commit)
	queue  *observing.Queue
}

// Observe calls o for each commit of the file: see [observe.Observer.Committed]. Failures of the
// observer are logged to logger; nil means [slog.Default]. storageapi.NewHandler sets this option
// for a file that it opens.
func Observe(o observe.Observer, logger *slog.Logger) Option {
	return func(options *boltoption.Options) {
		options.Observer = o
		if logger != nil {
			options.Logger = logger
		}
	}
}

func newObserver(o observe.Observer, logger *slog.Logger) *observer {
	if o.Committed == nil {
		return nil
	}
	return &observer{o.Committed, observing.NewQueue(logger, o.Lost)}
}

func (o *observer) committed(steps int, took time.Duration, err error) {
	c := observe.Commit{Steps: steps, Duration: took, Err: err}
	o.queue.Add(func() { o.report(c) })
}
