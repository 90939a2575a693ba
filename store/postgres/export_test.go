package postgres

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Publishing tells how many send events, and how many events wait to be sent.
func (s *Store) Publishing() (senders, waiting int) {
	s.publisher.mu.Lock()
	defer s.publisher.mu.Unlock()
	return s.publisher.senders, len(s.publisher.waiting)
}

// Pool returns the connections.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// CheckClockAlways has each claim look at the database's clock.
func (s *Store) CheckClockAlways() { s.clock.every = 0 }

// AskEvery has who listens ask so often whether it is still connected.
func (s *Store) AskEvery(d time.Duration) { s.waker.ask = d }

// RenewAlways has claims renew the queue, twenty times a second at most, and the leases if something was
// deleted.
func (s *Store) RenewAlways() {
	s.renewal = renewal{bytes: 1, always: 50 * time.Millisecond}
}

// RenewNever has no claim look for tables to renew, however slow the machine is.
func (s *Store) RenewNever() {
	s.renewal = renewal{slow: time.Hour}
}

// ShardOf returns the shard of an account.
func ShardOf(account string) int16 { return shardOf(account) }

// Indexed are the settings of lists.
const Indexed = indexed

// KnowingOnly makes a node one that knows the first migrations only.
func KnowingOnly(n int) Option { return func(o *options) { o.migrations = o.migrations[:n] } }

// Migrating makes a node one that knows a further migration.
func Migrating(text string) Option {
	return func(o *options) {
		m := migration{len(o.migrations) + 1, text, sha256.Sum256([]byte(text))}
		o.migrations = append(slices.Clip(o.migrations), m)
	}
}

// FirstOldest is the first version that names the oldest that can use the schema.
const FirstOldest = firstOldest

// ListFailed returns the statement that lists failed deliveries.
func ListFailed(options ...Option) string { return optionsOf(options).names.in(listFailed) }

// SchemaOf returns the name that InSchema was given.
func SchemaOf(option Option) string { return optionsOf([]Option{option}).schema }
