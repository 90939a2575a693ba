package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

var (
	benchRate = flag.Int("rate", 4000, "events a second in BenchmarkSteady")
	benchFor  = flag.Duration("for", 5*time.Second, "how long BenchmarkSteady goes on")
	benchHeld = flag.Bool("held", false, "a transaction is open during all of BenchmarkSteady")
)

// BenchmarkSteady publishes at a fixed rate to 10,000 webhooks while two nodes claim and settle. It
// prints the sizes of the tables, measured every 30 s or ten times in all:
//
//	go test -run '^$' -bench Steady -benchtime 1x -for 10m -held
func BenchmarkSteady(b *testing.B) {
	p, _ := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchEndpoints)
	nodes := []*postgres.Store{s, openOn(b, p)}
	warm := 2 * *benchRate // warm up: each connection plans its statements
	go publish(b, s, warm)
	drain(b, nodes, warm, &record{})
	for b.Loop() {
		var group sync.WaitGroup
		if *benchHeld {
			hold(b, p.BeginTx)
		}
		g := &growth{pool: p, begun: time.Now()}
		done := make(chan struct{})
		group.Go(func() { g.watch(b, min(30*time.Second, *benchFor/10), done) })
		total := int(float64(*benchRate) * benchFor.Seconds())
		group.Go(func() { publish(b, s, total) })
		drain(b, nodes, total, &g.record)
		close(done)
		group.Wait()
		g.record.report(b)
		fmt.Println(g) // Log would truncate it
		for name, bytes := range g.samples[len(g.samples)-1].bytes {
			b.ReportMetric(mebibytes(bytes), name+"_MiB")
		}
	}
}

// publish publishes total events at the benchmark's rate.
func publish(b *testing.B, s *postgres.Store, total int) {
	begun := time.Now()
	var group sync.WaitGroup
	const publishers = 32
	for i := range publishers {
		group.Go(func() {
			for j := i; j < total; j += publishers {
				time.Sleep(time.Until(begun.Add(time.Duration(j) * time.Second / time.Duration(*benchRate))))
				_, err := s.Enqueue(context.Background(), driver.EncodedEvent{
					ID: fmt.Sprintf("evt_%d_%d", begun.UnixNano(), j), Account: fmt.Sprintf("acct_wh_%06d", j*7919%*benchEndpoints),
					Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte(`{"a":1}`),
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// A growth records how the tables grow while nodes work.
type growth struct {
	record
	pool    *pgxpool.Pool
	begun   time.Time
	samples []sample
}

// A sample has the measurements since the previous sample.
type sample struct {
	at      time.Duration
	settled int
	claims  []time.Duration
	bytes   map[string]int64 // by table, including indexes
	dead    map[string]int64 // dead rows, according to the server's statistics
	oldest  time.Duration    // age of the oldest open transaction
}

// watch takes samples until done is closed, and then a last one.
func (g *growth) watch(b *testing.B, every time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for settled, claims, ended := 0, 0, false; !ended; {
		select {
		case <-tick.C:
		case <-done:
			ended = true
			if n := len(g.samples); n > 0 && time.Since(g.begun)-g.samples[n-1].at < every/2 {
				return
			}
		}
		s := sample{at: time.Since(g.begun), bytes: make(map[string]int64), dead: make(map[string]int64)}
		g.mu.Lock()
		s.settled, s.claims = g.settled-settled, g.claims[claims:]
		settled, claims = g.settled, len(g.claims)
		g.mu.Unlock()
		if err := g.look(&s); err != nil {
			b.Error(err)
			return
		}
		g.samples = append(g.samples, s)
	}
}

// grown lists the tables that deliveries use; their parts are included.
var grown = []string{"pending", "changes", "event_log", "event_bodies", "event_ids", "attempt_log"}

func (g *growth) look(s *sample) error {
	ctx := context.Background()
	var seconds float64
	err := g.pool.QueryRow(ctx, `select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8
		from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&seconds)
	if err != nil {
		return err
	}
	s.oldest = time.Duration(seconds * float64(time.Second))
	rows, err := g.pool.Query(ctx, `
		select relname, sum(pg_total_relation_size(part))::bigint, sum(coalesce(pg_stat_get_dead_tuples(part), 0))::bigint
		from pg_class c cross join lateral (select c.oid as part union select relid from pg_partition_tree(c.oid)) p
		where relnamespace = 'storageapi'::regnamespace and relname = any($1::text[]) group by relname`, grown)
	if err != nil {
		return err
	}
	var name string
	var bytes, dead int64
	_, err = pgx.ForEachRow(rows, []any{&name, &bytes, &dead}, func() error {
		s.bytes[name], s.dead[name] = bytes, dead
		return nil
	})
	return err
}

// String returns a table of the samples. It shows dead rows only for tables whose rows are deleted
// all the time; the other tables grow until Purge is called.
func (g *growth) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nat\tsettled/s\tclaim p50\tp99\topen for\tdead: pending\tchanges\tMiB:")
	for _, name := range grown {
		fmt.Fprint(w, " ", name, "\t")
	}
	fmt.Fprintln(w)
	before := time.Duration(0)
	for _, s := range g.samples {
		fmt.Fprintf(w, "%.0f s\t%.0f\t%.1f ms\t%.1f ms\t%.0f s\t%d\t%d\t", s.at.Seconds(), float64(s.settled)/(s.at-before).Seconds(),
			millis(quantile(s.claims, 0.5)), millis(quantile(s.claims, 0.99)), s.oldest.Seconds(), s.dead["pending"], s.dead["changes"])
		for _, name := range grown {
			fmt.Fprintf(w, "%.1f\t", mebibytes(s.bytes[name]))
		}
		fmt.Fprintln(w)
		before = s.at
	}
	_ = w.Flush()
	return out.String()
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mebibytes(bytes int64) float64  { return float64(bytes) / (1 << 20) }
