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

// A Store stores everything in one schema of a PostgreSQL database, which other Stores
// may use at the same time. It implements [store.Store].
type Store struct {
	pool    *pgxpool.Pool
	own     bool // Close closes the pool
	options *options

	warnings []string // see Warnings

	// steps is read-locked by each step; Close locks it to wait for them.
	steps  sync.RWMutex
	closed bool

	// statements are the statements for the host's schema, by their text.
	statements sync.Map

	reset     atomic.Pointer[time.Time] // when idle connections were closed
	node      *shards.Node
	settling  sync.RWMutex // read-locked by each settlement once it has its connection, locked by changes of owners: on the server alone a queue of settlements could delay these without end
	owned     ownedShards
	notifier  notifier
	publisher publisher
	lookups   *batch.Group[*lookup]
	cursor    cursor
	clock     clock
	partsHeld atomic.Pointer[time.Time] // until then no parts are dropped, see dropParts

	sparePartsAt atomic.Int64 // when to look whether parts run out, in nanoseconds, see checkParts
}

type options struct {
	schema string
	names  names
	keys   *signing.Keyring
	poll   time.Duration
	quiet  bool
	logger *slog.Logger

	ownPool bool // its connections have ownSettings

	migrations []migration // those that this version knows
}

// An Option configures a Store.
type Option func(*options)

// InSchema sets the schema of the tables, a name of 1 to 48 bytes. Give each service in a
// database its own. Default: [DefaultSchema].
func InSchema(name string) Option {
	return func(o *options) {
		o.schema, o.names = name, names{pgx.Identifier{name}.Sanitize()}
	}
}

// Sealed encrypts the webhooks' signing secrets under the first of the keys. [Open] and
// [New] seal secrets again that are in plain text or under another of the keys.
func Sealed(keys *signing.Keyring) Option { return func(o *options) { o.keys = keys } }

// PollEvery sets within which time a node that delivers looks for changes that it is not notified of,
// after five to seven eighths of it: 1 ms to an hour. These are events of [Store.PublishTx], and all
// changes while it does not listen. A node that listens and has heard of no PublishTx looks once a
// second at least, or within this time if that is longer, in case a notification was lost. Default: 100 ms.
func PollEvery(d time.Duration) Option { return func(o *options) { o.poll = d } }

// PollOnly makes nodes neither notify each other nor listen, for poolers in transaction
// mode and for databases without LISTEN. Nodes that listen hear nothing of those that poll only, and
// look once a second: let all poll, or none.
func PollOnly() Option { return func(o *options) { o.quiet = true } }

// Logger sets where the Store logs what no call returns, such as pending deliveries that cannot be
// read. Default: slog.Default().
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// haveSettings is the option of a Store whose connections have been prepared.
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

// Open connects to the database of dsn, a URL or connection string as pgxpool takes it,
// migrates it, and returns a Store that closes its connections when it is closed. Errors
// do not contain the password.
//
// The defaults of application_name, connect_timeout and pool_ping_timeout are storageapi,
// 5 s and 2 s. TCP connections whose other end does not answer for 10 s are closed.
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

// New returns a Store on the caller's pool, which the caller closes after the Store. A
// step whose context has no deadline takes at most 10 s; after a step without an answer
// the pool's idle connections are closed. See [Open] for settings that detect silent
// connections sooner.
//
// The schema must exist: see [Migrate]. The role must be allowed to create tables in it, and must own
// its tables or be a member of the role that does: without that nothing could be purged. The connections' default_transaction_isolation
// must be read committed; the host's own transactions may use any. New returns an error
// that wraps [ErrClock] if this node's clock differs from the database's by more than an
// hour. If synchronous_commit or fsync is off it returns a Store whose [Store.Warnings] say so, which
// webhooks.New logs.
func New(ctx context.Context, pool *pgxpool.Pool, options ...Option) (*Store, error) {
	o := optionsOf(options)
	if err := o.check(); err != nil {
		return nil, err
	}
	short, cancel := within(ctx, patience)
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
		return nil, fmt.Errorf("the connections' default_transaction_isolation is %s; it must be read committed", isolation)
	}
	if encoding != "UTF8" {
		return nil, fmt.Errorf("the database's encoding is %s; it must be UTF8", encoding)
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
	if err := s.reseal(ctx); err != nil {
		return nil, err
	}
	if err := s.loadCursor(ctx); err != nil {
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
		list = append(list, "synchronous_commit is off: a crash of the database loses what was acknowledged in the last second; set it to on for the Store's role or connections")
	}
	if sync == "off" {
		list = append(list, "fsync is off: a crash of the database's machine may lose everything; set it to on")
	}
	return list
}

// Capabilities implements [store.Store]. Its Warnings are about settings that [New] has found.
func (s *Store) Capabilities() capability.Set {
	return capability.Set{Doubt: s.clock.doubted, Warnings: s.warnings, Shared: true, PurgesConcurrently: true}
}

// Close waits for the steps under way, and leaves the shards of this node to the others.
// Afterwards every method returns [store.ErrClosed].
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

// begin starts a step, which s.steps.RUnlock ends, or returns why it cannot start.
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

// sql returns a statement in the host's schema.
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
