package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/store/storetest"
)

var (
	benchDue       = flag.Int("due", 100_000, "deliveries that are due in BenchmarkQueue")
	benchEndpoints = flag.Int("endpoints", 10_000, "webhooks that they are of")
)

// durable starts a separate server that syncs to disk, and returns connections to it.
func durable(t testing.TB) (*pgxpool.Pool, *cluster.Cluster) {
	t.Helper()
	return migrated(t, "shared_buffers=512MB", "max_wal_size=4GB")
}

func openOn(t testing.TB, p *pgxpool.Pool, options ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.New(t.Context(), p, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// endpoints creates n webhooks, each in a separate account.
func endpoints(t testing.TB, s *postgres.Store, n int) {
	t.Helper()
	secret := signing.NewSecret()
	var group sync.WaitGroup
	for worker := range 32 {
		group.Go(func() {
			for i := worker; i < n; i += 32 {
				id := fmt.Sprintf("wh_%06d", i)
				if err := s.CreateWebhook(context.Background(), driver.Webhook{
					ID: id, Account: "acct_" + id, URL: "https://example.com/" + id, Events: []driver.EventType{alerts.TypeBalanceLow},
					WebhookHealth: driver.WebhookHealth{Active: true}, Secret: secret, CreatedAt: time.Now(),
				}, driver.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// fill adds n deliveries that are due, like Enqueue. They are distributed over all webhooks in
// turn. The tables are not analyzed afterwards.
func fill(t testing.TB, p *pgxpool.Pool, schema string, n int) {
	t.Helper()
	fillAccount(t, p, schema, "", n)
}

// fillAccount is like fill, but only for the webhooks of one account, unless account is empty.
func fillAccount(t testing.TB, p *pgxpool.Pool, schema, account string, n int) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), p, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), `select set_config('search_path', $1, true)`, quoted(schema)+", pg_temp"); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), strings.ReplaceAll(`
			create temp table filling on commit drop as
			select ((extract(epoch from clock_timestamp() - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint - 10 * $1 + i) * 4096 + 4095 as event, w.*, i
			from generate_series(1, $1) i
			join (select no, `+quoted(schema)+`.shard_of(account) as shard, account, row_number() over (order by id) as place, count(*) over () as total from webhooks where '`+account+`' in ('', account)) w on w.place = i % w.total + 1;
			insert into event_log (event, account, id, type, at, matched)
			select event, account, 'evt_' || event, 'balance.low', now(), 1 from filling;
			insert into event_bodies (event, body) select event, convert_to(repeat('{"a":1}', 30), 'UTF8') from filling;
			insert into event_ids (part, account, id, event) select 0, account, 'evt_' || event, event from filling;
			insert into pending (webhook, event, shard, recovered, due, attempts, before)
			select no, event, shard, false, now(), 0, 0 from filling order by i;
			insert into changes (kind, shards, webhooks, events)
			select 0, array_agg(shard), array_agg(no), array_agg(event) from filling group by i / 1000`, "$1", strconv.Itoa(n)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// walOf returns how many bytes of write-ahead log the server has written.
func walOf(t testing.TB, p *pgxpool.Pool) (bytes float64) {
	if err := p.QueryRow(context.Background(), `select (pg_current_wal_lsn() - '0/0')::float8`).Scan(&bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[int(float64(len(list)-1)*q)]
}

// BenchmarkQueue measures four nodes that claim and settle without HTTP. It alternates them with
// four loops on a minimal queue, see [bareQueue].
func BenchmarkQueue(b *testing.B) {
	p, server := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchEndpoints)
	nodes := []*postgres.Store{s, openOn(b, p), openOn(b, p), openOn(b, p)}
	for i := range 20 * len(nodes) { // the statements are planned while the queue is empty
		s := nodes[i%len(nodes)]
		if _, err := storetest.WorkerOf(s).Claim(b.Context(), 400); err != nil {
			b.Fatal(err)
		}
	}
	bare := newBareQueue(b, p)
	c := contest{server: server, names: [2]string{"queue", "bare"}}
	var r record
	var wal float64
	for b.Loop() {
		fill(b, p, postgres.DefaultSchema, *benchDue)
		bare.fill(b, *benchDue)
		for side, do := range []func(){func() { drain(b, nodes, *benchDue, &r) }, func() { bare.drain(b, len(nodes)) }} {
			cpu, begun, log := server.CPU()+ownCPU(), time.Now(), walOf(b, p)
			do()
			c.add(side, *benchDue, time.Since(begun), server.CPU()+ownCPU()-cpu, nil)
			if side == 0 {
				wal += walOf(b, p) - log
			}
		}
	}
	c.report(b)
	r.report(b)
	b.ReportMetric(wal/float64(r.settled), "wal_B/delivery")
}

// A record collects the claims and settlements of nodes.
type record struct {
	mu      sync.Mutex
	settled int
	claims  []time.Duration // duration of each claim
	settles []time.Duration
}

func (r *record) add(n int, claim, settle time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled, r.claims, r.settles = r.settled+n, append(r.claims, claim), append(r.settles, settle)
}

// drain lets each node claim and settle until all n deliveries are settled.
func drain(b *testing.B, nodes []*postgres.Store, n int, r *record) {
	var done atomic.Int64
	var group sync.WaitGroup
	for _, s := range nodes {
		group.Go(func() {
			for done.Load() < int64(n) {
				at := time.Now()
				tasks, err := storetest.WorkerOf(s).Claim(context.Background(), 400)
				claimed := time.Since(at)
				if err != nil {
					b.Error(err)
					return
				}
				if len(tasks) == 0 {
					time.Sleep(time.Millisecond)
					continue
				}
				var list []storetest.Settlement
				for _, task := range tasks {
					list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: at, Status: 200}})
				}
				at = time.Now()
				stale, err := storetest.WorkerOf(s).Settle(context.Background(), list)
				if err != nil || len(stale) > 0 {
					b.Errorf("Settle = %v, %v", stale, err)
					return
				}
				done.Add(int64(len(tasks)))
				r.add(len(tasks), claimed, time.Since(at))
			}
		})
	}
	group.Wait()
}

// report reports the metrics of the recorded calls.
func (r *record) report(b *testing.B) {
	b.ReportMetric(float64(r.settled)/float64(len(r.claims)), "a_claim")
	b.ReportMetric(millis(quantile(r.claims, 0.5)), "claim_p50_ms")
	b.ReportMetric(millis(quantile(r.claims, 0.99)), "claim_p99_ms")
	b.ReportMetric(millis(quantile(r.settles, 0.5)), "settle_p50_ms")
}
