package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A bareQueue is a minimal queue in PostgreSQL: a table whose rows are leased with SKIP LOCKED,
// oldest first, and then deleted, with one log row per deleted row. It has no fairness between
// webhooks, no concurrency limits, no fencing, no retries and no health.
type bareQueue struct{ pool *pgxpool.Pool }

func newBareQueue(b *testing.B, p *pgxpool.Pool) bareQueue {
	_, err := p.Exec(b.Context(), `
		create table bare_queue (id bigint generated always as identity primary key, webhook bigint not null, until timestamptz, body bytea not null);
		create index on bare_queue (id) where until is null;
		create table bare_log (id bigint primary key, number integer not null, started_at timestamptz not null, took bigint not null, status integer not null)`)
	if err != nil {
		b.Fatal(err)
	}
	return bareQueue{p}
}

func (q bareQueue) fill(b *testing.B, n int) {
	_, err := q.pool.Exec(b.Context(), `insert into bare_queue (webhook, body) select i, convert_to(repeat('{"a":1}', 30), 'UTF8') from generate_series(1, $1::integer) i`, n)
	if err != nil {
		b.Fatal(err)
	}
}

// drain claims and settles rows, 400 at a time, in the given number of concurrent loops until the
// queue is empty.
func (q bareQueue) drain(b *testing.B, loops int) {
	var group sync.WaitGroup
	for range loops {
		group.Go(func() {
			for {
				n, err := q.some()
				if err != nil {
					b.Error(err)
				}
				if n == 0 || err != nil {
					return
				}
			}
		})
	}
	group.Wait()
}

func (q bareQueue) some() (n int, err error) {
	ctx, at := context.Background(), time.Now()
	rows, err := q.pool.Query(ctx, `
		update bare_queue q set until = clock_timestamp() + interval '1 minute'
		from (select id from bare_queue where until is null order by id limit 400 for update skip locked) next where q.id = next.id
		returning q.id, q.webhook, q.body`)
	if err != nil {
		return 0, err
	}
	var id, webhook int64
	var body []byte
	var ids []int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &webhook, &body}, func() error { ids = append(ids, id); return nil }); err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = q.pool.Exec(ctx, `
		with gone as (delete from bare_queue where id = any($1::bigint[]) returning id)
		insert into bare_log select id, 1, $2, 1, 200 from gone`, ids, at)
	return len(ids), err
}
