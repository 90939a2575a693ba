package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Deleted rows stay for as long as any transaction in the database might see them, and
// claims pass them by. So a table that has many of them, and few others, is written
// anew. Whoever wants to use it meanwhile waits, and sees all that is there then: every
// statement that reads it has a snapshot of its own, taken once it has waited. Standbys
// nobody waits for: the table would stay locked, and what is committed later comes after.
const renew = `
	set local lock_timeout = '100ms';
	set local statement_timeout = '1s';
	set local synchronous_commit = off;
	lock table storageapi.%[1]s in access exclusive mode;
	create temporary table storageapi_renewed on commit drop as select * from storageapi.%[1]s;
	truncate storageapi.%[1]s;
	insert into storageapi.%[1]s select * from pg_temp.storageapi_renewed`

// worthRenewing reports whether a table is large, at $1 bytes or more, less than half of
// that is rows, and those are less than $2. The server's own counts of rows do not tell:
// they lag, and lose what was truncated.
const worthRenewing = `
	select size >= $1 and rows < $2 and size >= 2 * bytes
	from (select pg_relation_size(to_regclass($3)) as size) s
	cross join lateral (
		select count(*) as rows, coalesce(sum(pg_column_size(r.t)), 0) as bytes
		from (select t from storageapi.%[1]s t where size >= $1 limit $2) r) r`

const (
	slowLook   = 10 * time.Millisecond // of a claim that may be passing by what was deleted
	minRenewed = 2 << 20               // bytes: some 25,000 rows
	maxRows    = 100_000               // some half a second in which all others wait
	renewEvery = 2 * time.Second       // at most; and after failures up to
	renewLate  = time.Minute
)

// renewal is when tables are renewed.
type renewal struct {
	slow  time.Duration // slowLook
	bytes int           // minRenewed
	every time.Duration // renewEvery

	mu    sync.Mutex
	due   bool
	next  time.Time
	pause time.Duration // before the next
}

// looked notes how long a claim has looked for what is due.
func (r *renewal) looked(took time.Duration) {
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

// renew renews what is worth it, if it can: nothing depends on that but how long claims
// take.
func (s *Store) renew(ctx context.Context, conn *pgxpool.Conn) {
	var failed error
	for _, table := range []string{"queue", "leases"} {
		var worth bool
		err := conn.QueryRow(ctx, s.sql(fmt.Sprintf(worthRenewing, table)), s.renewal.bytes, maxRows, s.sql("storageapi."+table)).Scan(&worth)
		if err == nil && worth {
			_, err = conn.Conn().PgConn().Exec(ctx, s.sql(fmt.Sprintf(renew, table))).ReadAll()
		}
		if err != nil {
			failed = err
		}
	}
	s.renewal.ended(failed)
}
