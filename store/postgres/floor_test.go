package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

// A contest compares an operation of the store with the minimal PostgreSQL statement for the same
// purpose. It alternates between them, so that other load on the machine affects both alike.
type contest struct {
	server *cluster.Cluster
	names  [2]string
	do     [2]func(i int64) error
	next   int64
	turns  [2][]turn
}

// A turn is the result of one side in one round.
type turn struct {
	rate float64 // calls per second
	p50  float64 // median duration of a call, in microseconds
	cpu  float64 // processor time of the server and this process, in microseconds per call
}

// round lets each side make n calls from the given number of concurrent callers.
func (c *contest) round(b *testing.B, callers, n int) {
	for side, do := range c.do {
		took := make([]time.Duration, n)
		var place atomic.Int64
		var group sync.WaitGroup
		cpu, begun := c.server.CPU()+ownCPU(), time.Now()
		for range callers {
			group.Go(func() {
				for i := place.Add(1) - 1; i < int64(n); i = place.Add(1) - 1 {
					at := time.Now()
					if err := do(c.next + i); err != nil {
						b.Error(err)
						return
					}
					took[i] = time.Since(at)
				}
			})
		}
		group.Wait()
		c.add(side, n, time.Since(begun), c.server.CPU()+ownCPU()-cpu, took)
	}
	c.next += int64(n)
}

// add records a turn of n calls.
func (c *contest) add(side, n int, total, cpu time.Duration, took []time.Duration) {
	c.turns[side] = append(c.turns[side], turn{
		rate: float64(n) / total.Seconds(), p50: float64(quantile(took, 0.5).Nanoseconds()) / 1000, cpu: float64(cpu.Nanoseconds()) / 1000 / float64(n),
	})
}

// report reports the medians of both sides. It also reports the median, minimum and maximum, over
// all rounds, of the ratio of the first side to the second.
func (c *contest) report(b *testing.B) {
	for name, of := range map[string]func(turn) float64{
		"/s": func(t turn) float64 { return t.rate }, "_p50_us": func(t turn) float64 { return t.p50 }, "_cpu_us": func(t turn) float64 { return t.cpu },
	} {
		var ratios []float64
		var sides [2][]float64
		for i := range c.turns[0] {
			for side := range sides {
				sides[side] = append(sides[side], of(c.turns[side][i]))
			}
			ratios = append(ratios, sides[0][i]/sides[1][i])
		}
		if slices.Max(sides[0]) == 0 {
			continue // not measured
		}
		for side, list := range sides {
			slices.Sort(list)
			b.ReportMetric(list[len(list)/2], c.names[side]+name)
		}
		slices.Sort(ratios)
		ratio := strings.Trim(strings.ReplaceAll(name, "/s", "rate"), "_")
		ratio = strings.TrimSuffix(ratio, "_us") + "_ratio"
		b.ReportMetric(ratios[len(ratios)/2], ratio)
		b.ReportMetric(ratios[0], ratio+"_least")
		b.ReportMetric(ratios[len(ratios)-1], ratio+"_most")
	}
}

// BenchmarkPublish compares publishing with a prepared INSERT of the same bytes. Each event and
// each INSERT has a separate transaction.
func BenchmarkPublish(b *testing.B) {
	for _, publishers := range []int{1, 64} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			p, server := durable(b)
			s := openOn(b, p)
			endpoints(b, s, 1000)
			if _, err := p.Exec(b.Context(), `create table bare (id text primary key, body bytea)`); err != nil {
				b.Fatal(err)
			}
			if _, err := p.Exec(b.Context(), `vacuum analyze`); err != nil {
				b.Fatal(err)
			}
			body := []byte(fmt.Sprintf("%0300d", 1))
			c := contest{server: server, names: [2]string{"publish", "insert"}}
			c.do[0] = func(i int64) error {
				_, err := s.Enqueue(context.Background(), driver.EncodedEvent{
					ID: fmt.Sprintf("evt_%026d", i), Account: fmt.Sprintf("acct_wh_%06d", i%1000), Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: body,
				})
				return err
			}
			c.do[1] = func(i int64) error {
				_, err := p.Exec(context.Background(), `insert into bare values ($1, $2)`, fmt.Sprintf("evt_%026d", i), body)
				return err
			}
			c.round(b, publishers, 100*publishers) // warm up: prepare the statements
			c = contest{server: server, names: c.names, do: c.do, next: c.next}
			for b.Loop() {
				c.round(b, publishers, 50*(10+publishers))
			}
			c.report(b)
		})
	}
}

// BenchmarkVerify compares the lookup of a key with a prepared SELECT by primary key that returns
// the same amount of data.
func BenchmarkVerify(b *testing.B) {
	p, server := durable(b)
	s := openOn(b, p)
	const keys = 10_000
	manyKeys(b, s, keys)
	bareKeys(b, p)
	verify := func(s *postgres.Store) func(i int64) error {
		return func(i int64) error {
			_, err := s.KeyByHash(context.Background(), hashNo(i%keys))
			return err
		}
	}
	bare := func(i int64) error {
		h := hashNo(i % keys)
		var account, id, name string
		var names []string
		var created time.Time
		var expires, previousExpires *time.Time
		var hash, previous []byte
		return p.QueryRow(context.Background(), `select account, id, name, scopes, created_at, expires_at, hash, previous, previous_expires_at from bare where hash = $1`, h.Sum[:]).
			Scan(&account, &id, &name, &names, &created, &expires, &hash, &previous, &previousExpires)
	}
	own, err := postgres.Open(b.Context(), fmt.Sprintf("%s pool_max_conns=%d", server.DSN("postgres"), p.Config().MaxConns))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	for _, callers := range []int{1, 16} {
		for name, s := range map[string]*postgres.Store{"": own, "/host": s} {
			b.Run(fmt.Sprintf("callers=%d%s", callers, name), func(b *testing.B) {
				c := contest{server: server, names: [2]string{"verify", "select"}, do: [2]func(i int64) error{verify(s), bare}}
				c.round(b, callers, keys)
				c = contest{server: server, names: c.names, do: c.do, next: c.next}
				for b.Loop() {
					c.round(b, callers, 1000)
				}
				c.report(b)
			})
		}
	}
}

func hashNo(i int64) (h driver.Hash) {
	copy(h.Sum[:], fmt.Sprintf("%032d", i*7919))
	return h
}

// manyKeys creates n keys in a hundred accounts.
func manyKeys(b *testing.B, s *postgres.Store, n int64) {
	var group sync.WaitGroup
	for worker := range int64(32) {
		group.Go(func() {
			for i := worker; i < n; i += 32 {
				key := driver.Key{ID: fmt.Sprintf("key_%026d", i), Account: "acct_" + fmt.Sprint(i%100), Name: "key", Scopes: scopes.Specified(), CreatedAt: time.Now(), Hash: hashNo(i)}
				if err := s.CreateKey(context.Background(), key, driver.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// bareKeys creates a plain table with the same data as the keys.
func bareKeys(b *testing.B, p *pgxpool.Pool) {
	for _, sql := range []string{
		`create table bare as select account, id, name, scopes, created_at, expires_at, hash, previous, previous_expires_at from storageapi.keys`,
		`alter table bare add primary key (hash)`,
		`vacuum analyze`,
	} {
		if _, err := p.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
}
