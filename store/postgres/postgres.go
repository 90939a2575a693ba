package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/postgres/internal/batch"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

var _ store.Store = (*Store)(nil)

// A Store is a [store.Store] that keeps its data in one schema of a PostgreSQL database. Other
// Stores may use the same schema at the same time.
type Store struct {
	pool    *pgxpool.Pool
	own     bool // Close closes the pool
	options *options
	dataKey *signing.DataKey // if nil, secrets are stored in plain text

	warnings []string // see Capabilities

	// steps is read-locked by each step; Close locks it to wait for the running steps.
	steps  sync.RWMutex
	closed bool

	// statements caches the statements for the host's schema, by their text.
	statements sync.Map

	reset atomic.Pointer[time.Time] // when the idle connections were last closed
	node  *shards.Node
	// settling is read-locked by each settlement once it has its connection, and locked by
	// ownership changes, which queued settlements could otherwise starve on the server.
	settling  sync.RWMutex
	owned     ownedShards
	notifier  notifier
	publisher publisher
	lookups   *batch.Group[*lookup]
	cursors   cursors
	clock     clock
	partsHeld atomic.Pointer[time.Time] // dropParts does nothing before this time

	sparePartsAt atomic.Int64 // when to check the parts next, in Unix nanoseconds, see checkParts
}

type options struct {
	schema string
	names  names
	sealer signing.Sealer // nil means none
	poll   time.Duration
	quiet  bool
	logger *slog.Logger

	ownPool bool // its connections have ownSettings

	migrations []migration // known to this version
}

// An Option configures a Store.
type Option func(*options)

// InSchema sets the schema of the tables, a name of 1 to 48 bytes. Give each service that shares a
// database its own. Default: [DefaultSchema].
func InSchema(name string) Option {
	return func(o *options) {
		o.schema, o.names = name, names{pgx.Identifier{name}.Sanitize()}
	}
}

// Sealed encrypts the webhooks' signing secrets with a data key. The schema stores the data key,
// sealed by sealer: a [signing.Keyring], or the host's own [signing.Sealer] for a key management
// service. [Open] and [New] call sealer, encrypt secrets that are in plain text, and seal the data
// key again if sealer reports that it is stale. Every node needs a Sealer that opens the data key.
// Nodes that start at the same time agree on one data key. A sealed schema cannot be unsealed.
func Sealed(sealer signing.Sealer) Option { return func(o *options) { o.sealer = sealer } }

// PollEvery sets how often a delivering node looks for changes that arrive without a notification,
// every 1 ms to 1 h. Such changes are events of [Store.PublishTx] and, while the node does not
// listen, all changes. Each wait is five to seven eighths of it. While no node announces calls of
// PublishTx, a listening node reads at least once per second or per interval, whichever is longer,
// in case a notification was lost. Default: 100 ms.
func PollEvery(d time.Duration) Option { return func(o *options) { o.poll = d } }

// PollOnly disables NOTIFY and LISTEN, for poolers in transaction mode and for databases without
// LISTEN. Set it on all nodes or on none: listening nodes get no notifications from nodes that only
// poll, and find their changes within about a second.
func PollOnly() Option { return func(o *options) { o.quiet = true } }

// Logger sets the logger for problems that no call returns, such as unreadable pending deliveries.
// Default: slog.Default().
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// haveSettings is the option for a pool whose connections have ownSettings.
func haveSettings(o *options) { o.ownPool = !o.quiet }

func optionsOf(list []Option) *options {
	o := &options{schema: DefaultSchema, poll: 100 * time.Millisecond, migrations: allMigrations(), logger: slog.Default()}
	for _, option := range list {
		option(o)
	}
	return o
}

func (o *options) check() error {
	switch {
	case len(o.schema) < 1 || len(o.schema) > 48:
		return errors.New("InSchema: must be 1 to 48 bytes")
	case !utf8.ValidString(o.schema) || strings.ContainsRune(o.schema, 0):
		return errors.New("InSchema: must be UTF-8 without NUL")
	case o.poll < time.Millisecond || o.poll > time.Hour:
		return errors.New("PollEvery: must be 1ms to 1h")
	}
	return nil
}

// Open connects to the database of dsn, a URL or connection string in pgxpool's format, migrates
// it, and returns a Store whose Close closes the connections. Errors do not contain the password.
//
// The defaults are storageapi for application_name, 5 s for connect_timeout and 2 s for
// pool_ping_timeout. TCP connections whose peer does not answer for 10 s are closed.
func Open(ctx context.Context, dsn string, options ...Option) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err) // pgx redacts the password
	}
	o := optionsOf(options)
	prepare(config, o)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	err = Migrate(ctx, pool, options...)
	var s *Store
	if err == nil {
		s, err = New(ctx, pool, append(slices.Clip(options), haveSettings)...)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	s.own = true
	return s, nil
}

// New returns a Store that uses the caller's pool. The caller closes the pool after the Store. A
// step whose context has no deadline takes at most 10 s. If a step gets no answer, the Store closes
// the pool's idle connections. [Open] configures its connections to detect a silent server sooner.
//
// The schema must exist, see [Migrate]. The role must be allowed to create tables in it and must
// own its tables, or be a member of the owning role; otherwise Purge could not drop old partitions.
// The connections' default_transaction_isolation must be read committed; the host's own
// transactions may use any isolation level. New returns an error that wraps [ErrClock] if this
// node's clock differs from the database's by more than an hour. If synchronous_commit or fsync is
// off, the Warnings of [Store.Capabilities] say so, and webhooks.New logs them.
func New(ctx context.Context, pool *pgxpool.Pool, options ...Option) (*Store, error) {
	o := optionsOf(options)
	if err := o.check(); err != nil {
		return nil, err
	}
	short, cancel := within(ctx, defaultTimeout)
	defer cancel()
	var encoding, isolation, commit, sync string
	var now time.Time
	asked := time.Now()
	if err := pool.QueryRow(short, `
		select current_setting('server_encoding'), current_setting('default_transaction_isolation'), coalesce(current_setting('synchronous_commit', true), ''),
			coalesce(current_setting('fsync', true), ''), clock_timestamp()`).Scan(&encoding, &isolation, &commit, &sync, &now); err != nil {
		return nil, failure(short, err)
	}
	if isolation == "repeatable read" || isolation == "serializable" {
		return nil, fmt.Errorf("connections have default_transaction_isolation %q; it must be \"read committed\"", isolation)
	}
	if encoding != "UTF8" {
		return nil, fmt.Errorf("database encoding is %s, must be UTF8", encoding)
	}
	if err := checkSchema(short, pool, o); err != nil {
		return nil, err
	}
	if err := checkRights(short, pool, o); err != nil {
		return nil, err
	}
	s := &Store{pool: pool, options: o, clock: clock{every: clockEvery}, warnings: warningsOf(commit, sync)}
	if err := s.clock.check(asked, now); err != nil {
		return nil, err
	}
	if err := s.keepObserving(ctx); err != nil {
		return nil, err
	}
	if err := s.openDataKey(ctx); err != nil {
		return nil, fmt.Errorf("signing secrets: %w", err)
	}
	if err := s.reseal(ctx); err != nil {
		return nil, err
	}
	if err := s.loadCursors(ctx); err != nil {
		return nil, err
	}
	if err := s.makeSpareParts(ctx); err != nil {
		return nil, err
	}
	s.owned.start()
	s.node = shards.New(nodeStore{s}, nodeStore{s})
	s.notifier.start(s)
	s.publisher.start(s)
	s.startLookups()
	return s, nil
}

// warningsOf returns the warnings about the settings synchronous_commit and fsync.
func warningsOf(commit, sync string) (list []string) {
	if commit == "off" {
		list = append(list, "synchronous_commit is off: a database crash loses the acknowledged commits of the last second; set it to on for the Store's role or connections")
	}
	if sync == "off" {
		list = append(list, "fsync is off: a crash of the database's machine may lose all data; set it to on")
	}
	return list
}

// Capabilities implements [store.Store]. Its Warnings are about settings of the database that [New]
// read.
func (s *Store) Capabilities() capability.Set {
	return capability.Set{Doubt: s.clock.doubted, Warnings: s.warnings, Shared: true, PurgesConcurrently: true, WatchKeys: s.watchKeys}
}

// Close waits for the running steps and releases this node's shards to the other nodes. After Close
// every method returns [store.ErrClosed].
func (s *Store) Close() error {
	s.node.Stop()
	s.steps.Lock()
	was := s.closed
	s.closed = true
	s.steps.Unlock()
	if was {
		return nil
	}
	s.node.Close()
	s.notifier.group.Wait()
	if s.own {
		s.pool.Close()
	}
	return nil
}

// begin starts a step, which the caller must end with s.steps.RUnlock. If it returns an error, the
// step must not run.
func (s *Store) begin(ctx context.Context) error {
	if !s.steps.TryRLock() {
		return store.ErrClosed // Close is waiting for earlier steps
	}
	err := ctx.Err()
	if s.closed {
		err = store.ErrClosed
	}
	if err != nil {
		s.steps.RUnlock()
	}
	return err
}

// sql returns a statement for the host's schema.
func (s *Store) sql(text string) string {
	if s.options.names.schema == "" {
		return text
	}
	known, ok := s.statements.Load(text)
	if !ok {
		known, _ = s.statements.LoadOrStore(text, s.options.names.in(text))
	}
	return known.(string)
}
