package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Deleted rows stay as long as any transaction in the database might see them, and claims
// have to skip them. So ready deliveries are in a generation of the queue. When a generation
// has many deleted rows and few others, these are moved to the next, and claims read only
// that one. Older snapshots, such as pg_dump's, see all rows where they were; the table
// itself shrinks no more than any other.
//
// Rows are written to the newest generation, the last value of the sequence, which
// transactions with an older snapshot see, too. A writer locks the queue before it reads
// that value, and renewing waits for writers. Claims read the generations from the mark on,
// and the first: if renewing is rolled back after it has begun the next, they read both.
const (
	oldestNo = `(select event from storageapi.marks where name = 'generation')`
	newestNo = `(select greatest(last_value, ` + oldestNo + `) from storageapi.queue_generation)`

	// newest is what the newest generation adds to kinds. The numbers repeat after 8191,
	// which takes hours of nothing but renewals, except the 0 of the first.
	newest = `(4 * (1 + (` + newestNo + ` - 1) % 8191))::smallint`

	// generations are what the generations that claims read add to kinds. 0 is always one
	// of them, for older nodes without generations.
	generations = `(select 0::smallint as kind union all
		select (4 * (1 + (no - 1) % 8191))::smallint from generate_series(greatest(` + oldestNo + `, 1), ` + newestNo + `) as no) g`

	// kinds are the kinds of these generations.
	kinds = `(select (g.kind + k.kind)::smallint as kind from ` + generations + ` cross join unnest('{0,1,2,3}'::smallint[]) as k (kind))`

	// readyNow holds for ready deliveries of these kinds.
	readyNow = `not parked and kind = any(array` + kinds + `)`
)

// renewQueue moves ready deliveries to the next generation, with the queue locked against
// writers. It does not wait for standbys, because the table would stay locked; later
// commits come after it.
const renewQueue = `
	select ` + unidle + `, ` + probed + `, set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true),
		set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '1s', true);
	lock table storageapi.queue in share row exclusive mode;
	select setval(tableoid::regclass, ` + newestNo + ` + 1) from storageapi.queue_generation;
	update storageapi.queue set kind = ` + newest + ` + (kind & 3::smallint) where ` + readyNow + `;
	update storageapi.marks set event = ` + newestNo + ` where name = 'generation'`

// queueState returns the size of the index $1 of ready deliveries, the number of its rows,
// $2 at most, and the oldest and newest generation.
const queueState = `
	select pg_relation_size(to_regclass($1)), (select count(*) from (select from storageapi.queue where ` + readyNow + ` limit $2) r), ` + oldestNo + `, ` + newestNo

// renewLeases rewrites the leases. An older snapshot sees none then. Only claims and
// settlements use them, and take their snapshots after the lock; a restored dump has no
// leases.
const renewLeases = `
	select ` + unidle + `, ` + probed + `, set_config('synchronous_commit', 'off', true),
		set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '1s', true);
	lock table storageapi.leases in access exclusive mode;
	create temporary table storageapi_renewed on commit drop as select * from storageapi.leases;
	truncate storageapi.leases;
	insert into storageapi.leases select * from pg_temp.storageapi_renewed`

// worthRenewing reports whether the leases have at least $1 bytes, less than half of them
// rows, and less than $2 rows. The server's own row counts do not help: they lag, and are
// wrong after a truncate.
const worthRenewing = `
	select size >= $1 and rows < $2 and size >= 2 * bytes
	from (select pg_relation_size(to_regclass($3)) as size) s
	cross join lateral (
		select count(*) as rows, coalesce(sum(pg_column_size(r.t)), 0) as bytes
		from (select t from storageapi.leases t where size >= $1 limit $2) r) r`

const (
	slowScan       = 10 * time.Millisecond // of a claim that may be skipping deleted rows
	minRenewed     = 1 << 20               // bytes of leases, or growth of the index: some 13,000 leases or 25,000 entries
	indexBytes     = 40                    // bytes of a row in the index
	maxRows        = 100_000               // half a second or so, in which all others wait
	maxGenerations = 4                     // that claims read, for long
	renewEvery     = 2 * time.Second       // at most; after failures up to renewLate
	renewLate      = time.Minute
)

// renewal is when tables are renewed.
type renewal struct {
	slow   time.Duration // slowScan
	bytes  int64         // minRenewed
	every  time.Duration // renewEvery
	always time.Duration // renews the queue this often in any case; 0: only if it is worth it

	mu         sync.Mutex
	due        bool
	next       time.Time
	pause      time.Duration // before the next
	generation int64         // the newest generation seen; -1: none
	size       int64         // of the index, when that generation was first seen
	last       time.Time     // renewal, with always
}

// scanned notes how long a claim has looked for what is due.
func (r *renewal) scanned(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = r.due || took >= r.slow
}

// begins reports whether it is time to check if a renewal is worth it.
func (r *renewal) begins() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.due || time.Now().Before(r.next) {
		return false
	}
	r.due = false
	return true
}

func (r *renewal) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause = min(2*r.pause, renewLate); err == nil {
		r.pause = r.every
	}
	r.next = time.Now().Add(r.pause)
}

// worth reports whether the queue should be renewed, given the size of its index, its rows
// and its generations.
func (r *renewal) worth(size, rows, oldest, newest int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != newest {
		if r.generation >= 0 {
			r.size = size
		}
		r.generation = newest
	}
	if r.always > 0 {
		due := time.Since(r.last) >= r.always
		if due {
			r.last = time.Now()
		}
		return due
	}
	grown := size - r.size
	return rows < maxRows && (newest-oldest >= maxGenerations || grown >= r.bytes && grown >= 2*indexBytes*rows)
}

// renew renews the tables that are worth it, if it can. Only the time of claims depends on
// it.
func (s *Store) renew(ctx context.Context, conn *pgxpool.Conn) {
	var size, rows, oldest, newest int64
	var leases bool
	batch := &pgx.Batch{}
	batch.Queue(indexed)
	batch.Queue(s.sql(queueState), s.sql("storageapi.queue_ready"), maxRows).QueryRow(func(row pgx.Row) error { return row.Scan(&size, &rows, &oldest, &newest) })
	batch.Queue(s.sql(worthRenewing), s.renewal.bytes, maxRows, s.sql("storageapi.leases")).QueryRow(func(row pgx.Row) error { return row.Scan(&leases) })
	failed := conn.SendBatch(ctx, batch).Close()
	if failed == nil && s.renewal.worth(size, rows, oldest, newest) {
		_, failed = conn.Conn().PgConn().Exec(ctx, s.sql(renewQueue)).ReadAll()
	}
	if leases {
		if _, err := conn.Conn().PgConn().Exec(ctx, s.sql(renewLeases)).ReadAll(); err != nil {
			failed = err
		}
	}
	s.renewal.ended(failed)
}
