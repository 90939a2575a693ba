package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Deleted rows stay for as long as any transaction in the database might see them, and
// claims pass them by. So what is ready is in a generation of the queue: when it has left
// many deleted rows behind and few others, these are moved to the next, and claims look at
// that alone. Older snapshots, pg_dump's among them, see all rows where they were; the
// table itself shrinks no more than any other.
//
// What is written is of the newest generation: the last value of the sequence, which
// transactions with an older snapshot see, too. Whoever writes to the queue has locked it
// before that is read, and renewing waits for them. Claims look at the generations from the
// mark on, and at the first: if renewing is undone once it has begun the next, at both.
const (
	oldestNo = `(select event from storageapi.marks where name = 'generation')`
	newestNo = `(select greatest(last_value, ` + oldestNo + `) from storageapi.queue_generation)`

	// newest is what the newest generation adds to kinds. They come back after 8191, which
	// are some hours of nothing but renewals, but for the 0 of the first.
	newest = `(4 * (1 + (` + newestNo + ` - 1) % 8191))::smallint`

	// generations are what those that claims look at add to kinds. 0 is one of them for
	// ever: nodes that run since before there were generations go on, and know no other.
	generations = `(select 0::smallint as kind union all
		select (4 * (1 + (no - 1) % 8191))::smallint from generate_series(greatest(` + oldestNo + `, 1), ` + newestNo + `) as no) g`

	// kinds are all of theirs.
	kinds = `(select (g.kind + k.kind)::smallint as kind from ` + generations + ` cross join unnest('{0,1,2,3}'::smallint[]) as k (kind))`

	// readyNow is true of what is ready of these.
	readyNow = `not parked and kind = any(array` + kinds + `)`
)

// renewQueue moves what is ready to the next generation. Nobody writes to the queue
// meanwhile. Standbys nobody waits for: the table would stay locked, and what is committed
// later comes after.
const renewQueue = `
	select ` + unidle + `, ` + probed + `, set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true),
		set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '1s', true);
	lock table storageapi.queue in share row exclusive mode;
	select setval(tableoid::regclass, ` + newestNo + ` + 1) from storageapi.queue_generation;
	update storageapi.queue set kind = ` + newest + ` + (kind & 3::smallint) where ` + readyNow + `;
	update storageapi.marks set event = ` + newestNo + ` where name = 'generation'`

// queueState tells how large the index $1 of what is ready is, how many rows of it there
// are, $2 at most, and of which generations.
const queueState = `
	select pg_relation_size(to_regclass($1)), (select count(*) from (select from storageapi.queue where ` + readyNow + ` limit $2) r), ` + oldestNo + `, ` + newestNo

// The leases are written anew. An older snapshot sees none then: nothing but claims and
// settlements uses them, which take theirs once they have the lock, and in a dump that is
// restored nothing is leased.
const renewLeases = `
	select ` + unidle + `, ` + probed + `, set_config('synchronous_commit', 'off', true),
		set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '1s', true);
	lock table storageapi.leases in access exclusive mode;
	create temporary table storageapi_renewed on commit drop as select * from storageapi.leases;
	truncate storageapi.leases;
	insert into storageapi.leases select * from pg_temp.storageapi_renewed`

// worthRenewing reports whether the leases are large, at $1 bytes or more, less than half of
// that is rows, and those are less than $2. The server's own counts of rows do not tell:
// they lag, and lose what was truncated.
const worthRenewing = `
	select size >= $1 and rows < $2 and size >= 2 * bytes
	from (select pg_relation_size(to_regclass($3)) as size) s
	cross join lateral (
		select count(*) as rows, coalesce(sum(pg_column_size(r.t)), 0) as bytes
		from (select t from storageapi.leases t where size >= $1 limit $2) r) r`

const (
	slowScan       = 10 * time.Millisecond // of a claim that may be passing by what was deleted
	minRenewed     = 1 << 20               // bytes of leases, or by which the index has grown: some 13,000 or 25,000
	indexBytes     = 40                    // bytes of a row in the index
	maxRows        = 100_000               // some half a second in which all others wait
	maxGenerations = 4                     // that claims look at, for long
	renewEvery     = 2 * time.Second       // at most; and after failures up to
	renewLate      = time.Minute
)

// renewal is when tables are renewed.
type renewal struct {
	slow   time.Duration // slowScan
	bytes  int64         // minRenewed
	every  time.Duration // renewEvery
	always time.Duration // the queue as often, whatever is in it; 0: if it is worth it

	mu         sync.Mutex
	due        bool
	next       time.Time
	pause      time.Duration // before the next
	generation int64         // the newest that was seen; -1: none
	size       int64         // of the index, when it was seen first
	last       time.Time     // that the queue was renewed, with always
}

// scanned notes how long a claim has looked for what is due.
func (r *renewal) scanned(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = r.due || took >= r.slow
}

// begins reports whether it is time to see if tables are to be renewed.
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

// worth reports whether the queue is to be renewed, whose index has so many bytes and
// rows, of these generations.
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

// renew renews what is worth it, if it can: nothing depends on that but how long claims
// take.
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
