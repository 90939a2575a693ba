package bolt

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/boltoption"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/alertcache"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/capability"
)

// ErrLocked is wrapped by the error of [Open] if the file is already open, in this process or
// another.
var ErrLocked = pagefile.ErrLocked

// ErrSchema is wrapped by the error of [Open] for a bbolt file that this version of the package
// cannot use, because it belongs to another program, has another schema, or is damaged.
var ErrSchema = pagefile.ErrSchema

// A Store is an open file. It implements [store.Store], whose methods only the services call: set
// the Store in storageapi.Config.
type Store struct {
	contract
	engine *engine
}

// contract is embedded so that the documentation of [Store] omits the methods that only services
// call.
type contract = store.Store

// Open opens the file at path, or creates it with mode 0600 in an existing directory. Open does
// not read pending deliveries. If it returns an error, the file is neither open nor locked. The
// error names the file. It wraps
//
//   - [ErrLocked] if the file stays open elsewhere for longer than [Wait],
//   - [ErrSchema] if another program made the file, or it has another schema or is damaged,
//   - [ErrLeft] if the file was left for another store,
//   - [signing.ErrSealed] if the file is sealed with a key that was not given,
//   - [signing.ErrSealer] if the Sealer failed, and
//   - [signing.ErrDamaged] if the data key is damaged.
func Open(path string, options ...Option) (*Store, error) {
	e, err := open(path, options...)
	if err != nil {
		return nil, err
	}
	return &Store{contract: e, engine: e}, nil
}

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

// CacheKeys sets the maximum number of keys in memory. A request with a cached key does not read
// the file. Cached keys are never stale: changes to a key take effect at once. A key takes some 250
// bytes once it has been used twice, and more if it has many host-defined scopes. 0 or less
// disables the cache. Default: 262,144, which takes some 61 MiB when full. Raise it if more keys
// are in use at a time.
func CacheKeys(count int) Option { return func(o *boltoption.Options) { o.CachedKeys = count } }

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

// Left lets [Open] open a file that was left for another store, for example to read it again. The
// other store does not get changes made to the file.
func Left() Option { return func(o *boltoption.Options) { o.Left = true } }

// Backup writes a copy of the file to w. The copy is a complete file that [Open] can open, in one
// consistent state. It includes everything acknowledged before the call, including alerts that are
// in memory only. Publishing, claiming deliveries and verifying keys continue meanwhile.
//
// Backup first copies the state to a temporary file next to the file, with mode 0600, and from
// there to w. So a slow w does not affect the live file. The temporary file needs space for the
// copy and 16 MiB more; otherwise Backup returns an error that wraps [syscall.ENOSPC] and leaves
// the space to the host. Backup removes the temporary file before it returns, even if w panics. If
// the process is killed, the next Open or Backup removes its temporary file, named
// "<path>.backing-up-…".
//
// If Backup returns an error, discard the data written to w: it is not a backup. If the context
// ended, the error is the context's. During and after Close it is [store.ErrClosed], unless the
// state was already copied. Otherwise it wraps the error of w or of the disk. Backup checks the
// context between writes; if a write hangs, w must end it. Even if it fails, Backup changes nothing
// in the store except the mark of its clock. A backup of a halted store has the state that its
// readers see.
//
// At the end, Backup compares the file with the copy. During the comparison, the file's pages
// cannot be reused, so the file grows by the size of all writes. The file also cannot outgrow its
// memory mapping, whose size is a power of two up to 1 GiB and a multiple of 1 GiB beyond. A commit
// that needs a larger mapping waits until the comparison ends, and so do reads of rows that are not
// in memory. The comparison takes some tenths of a second per GiB if the file is cached.
//
// Concurrent backups are independent; each needs its own space on disk. Backup takes half a MiB to
// 1 MiB of memory for a file of any size. The copy contains the signing secrets as the file stores
// them, and the free pages, which [Compact] omits.
func (s *Store) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	return s.engine.Backup(ctx, w)
}

// Halted returns the reason why the store has stopped writing, or nil if it has not stopped. A
// halted store resumes only when it is opened again.
func (s *Store) Halted() error { return s.engine.Halted() }

// Leave marks the file as left for another store, which place describes. From then on, Open returns
// [ErrLeft] for the file, except with the option [Left]. [Return] removes the mark, and so does
// Leave with an empty place.
func (s *Store) Leave(ctx context.Context, place string) error { return s.engine.Leave(ctx, place) }

// FileSize returns the size of the file and the size of its free pages, both in bytes. The free
// pages are counted at each commit. FileSize takes about a microsecond. It returns 0 and 0 once
// the store is closed.
func (s *Store) FileSize() (bytes, free int64) { return s.engine.FileSize() }

// Close writes the alerts that are in memory only, waits for the transactions in progress,
// including changes that wait for a commit, and closes the file. From then on every method returns
// [store.ErrClosed]; closing again has no effect. If the disk hangs in a commit, Close waits for
// it.
func (s *Store) Close() error { return s.engine.Close() }

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
		options: o, observer: newObserver(o.Observer, o.Logger), keyRows: newKeyRows(o.CachedKeys), keyCounts: newCounts(), requests: requests.New(),
		delivering: make(chan struct{}, 1), sweeping: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	s.clock.Now, s.marks.clock = o.System.Now, &s.clock
	s.webhookRows = newWebhookRows(s.decodeWebhook)
	s.alerts = alertcache.New(alertcache.Options{
		Read: s.readAlert, Erasing: s.erasing.has, Halted: func() bool { return s.writer.Halted() != nil },
	})
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
	return s.marks.load(s.db, logWriter.LastPublished())
}

// newBatch returns an empty batch. Only one exists at a time.
func (s *engine) newBatch(tx *groupcommit.Tx, log *eventlog.Writer) *batch {
	pagefile.Root(tx.Bolt).FillPercent = pagefile.RootFill
	return &batch{
		Tx: tx, tx: tx.Bolt, marks: &s.marks, keyRows: s.keyRows, erasing: &s.erasing,
		audit: auditlog.Step{Tx: tx}, parking: s.parking.Begin(tx),
		log: log.Begin(tx, func() error { return s.marks.mark(tx, markBusy) }),
	}
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
	s.webhookRows.end(ending)
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

// Doubt returns how much of the elapsed system time a clock jump may have added: see
// [capability.Set]. If the file was closed for more than an hour, all of that time counts as
// doubtful for a day.
func (s *engine) Doubt() time.Duration { return s.clock.Doubt() }
