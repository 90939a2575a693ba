package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/store/storetest"
)

var (
	benchTurn  = flag.Duration("turn", 10*time.Second, "how long each turn of BenchmarkNodes, BenchmarkIdle and BenchmarkArrival takes")
	benchNodes = flag.Int("nodes", 16, "nodes that BenchmarkNodes and BenchmarkIdle compare with one")
	benchUnder = flag.Int("underway", 100_000, "deliveries under way in BenchmarkInFlight")
)

// A fleet is a set of nodes with separate connections that claim and settle, without HTTP, as the
// dispatcher does. A node claims as soon as deliveries are due. It runs one settlement at a time,
// which settles all tasks that were claimed during the previous one.
type fleet struct {
	nodes []*postgres.Store
	group sync.WaitGroup
	end   context.CancelFunc

	settled atomic.Int64
	mu      sync.Mutex
	sent    []time.Duration // delays from the events' times to their publishing
	took    []time.Duration // delays from the events' times to their claims
}

// newFleet starts n nodes, and returns once they share the shards evenly.
func newFleet(b *testing.B, server *cluster.Cluster, n int) *fleet {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{end: cancel}
	for range n {
		s, err := postgres.Open(ctx, server.DSN("postgres")+" pool_max_conns=8")
		if err != nil {
			b.Fatal(err)
		}
		f.nodes = append(f.nodes, s)
		f.group.Go(func() { f.work(ctx, b, s) })
	}
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for shared, end := 0, time.Now().Add(time.Minute); shared != n; time.Sleep(100 * time.Millisecond) {
		err := conn.QueryRow(ctx, `select count(*) from (select from storageapi.shard_owners where node in (select node from storageapi.nodes)
			group by node having count(*) between 256 / $1::integer and 256 / $1 + 1) n`, n).Scan(&shared)
		if err != nil || time.Now().After(end) {
			b.Fatalf("%d of %d nodes have their share, %v", shared, n, err)
		}
	}
	return f
}

// close closes the nodes.
func (f *fleet) close() {
	f.end()
	f.group.Wait()
	for _, s := range f.nodes {
		_ = s.Close()
	}
}

func (f *fleet) work(ctx context.Context, b *testing.B, s *postgres.Store) {
	results := make(chan []storetest.Settlement, 1000)
	f.group.Go(func() { f.settle(b, s, results) })
	defer close(results)
	dispatch(ctx, b, s, 400, func(tasks []storetest.Task) {
		if len(tasks) > 0 {
			results <- f.arrived(tasks)
		}
	})
}

// arrived records how long tasks took until they were claimed, and returns their settlements.
func (f *fleet) arrived(tasks []storetest.Task) (list []storetest.Settlement) {
	at := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, task := range tasks {
		f.took = append(f.took, at.Sub(task.Event.Timestamp))
		list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: at, Status: 200}})
	}
	return list
}

func (f *fleet) settle(b *testing.B, s *postgres.Store, results <-chan []storetest.Settlement) {
	for list := range results {
		for more := true; more && len(list) < 1000; {
			select {
			case next := <-results:
				list = append(list, next...)
			default:
				more = false
			}
		}
		stale, err := storetest.WorkerOf(s).Settle(context.Background(), list)
		if err != nil || len(stale) > 0 {
			b.Errorf("Settle = %v, %v", stale, err)
			return
		}
		f.settled.Add(int64(len(list)))
	}
}

// A publishing is one of the ways to publish an event.
type publishing func(context.Context, driver.EncodedEvent) error

// publish publishes at the given rate for the duration during, even if the nodes fall behind. It
// returns the number of events once all are settled, or after another minute. The timestamp of an
// event is the time for which its publication was scheduled.
func (f *fleet) publish(b *testing.B, rate int, during time.Duration, do func(i int) publishing) (events int) {
	b.Helper()
	events = int(float64(rate) * during.Seconds())
	begun, before := time.Now(), f.settled.Load()
	var group sync.WaitGroup
	const publishers = 128
	for i := range publishers {
		group.Go(func() {
			for j := i; j < events; j += publishers {
				at := begun.Add(time.Duration(j) * time.Second / time.Duration(rate))
				time.Sleep(time.Until(at))
				if err := do(j)(context.Background(), driver.EncodedEvent{
					ID: fmt.Sprintf("evt_%d_%d", begun.UnixNano(), j), Account: fmt.Sprintf("acct_wh_%06d", j*7919%*benchEndpoints),
					Type: alerts.TypeBalanceLow, Timestamp: at, Body: []byte(`{"a":1}`),
				}); err != nil {
					b.Error(err)
				}
				f.mu.Lock()
				f.sent = append(f.sent, time.Since(at))
				f.mu.Unlock()
			}
		})
	}
	group.Wait()
	for end := time.Now().Add(time.Minute); f.settled.Load()-before < int64(events); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d of %d events were settled", f.settled.Load()-before, events)
		}
	}
	return events
}

// enqueue publishes on each of the nodes in turn.
func (f *fleet) enqueue(i int) publishing { return enqueueOn(f.nodes[i%len(f.nodes)]) }

func enqueueOn(s *postgres.Store) publishing {
	return func(ctx context.Context, event driver.EncodedEvent) error {
		_, err := s.Enqueue(ctx, event)
		return err
	}
}

// BenchmarkNodes alternates between 16 nodes and one node that publish, claim and settle at a fixed
// rate. It reports the processor time per event, of the server and of the nodes.
func BenchmarkNodes(b *testing.B) {
	for _, rate := range []int{200, 1000} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			p, server := durable(b)
			endpoints(b, openOn(b, p), *benchEndpoints)
			servers := contest{server: server, names: [2]string{"server_of_many", "server_of_one"}}
			nodes := contest{server: server, names: [2]string{"nodes_of_many", "nodes_of_one"}}
			for b.Loop() {
				for side, n := range []int{*benchNodes, 1} {
					f := newFleet(b, server, n)
					f.publish(b, rate, *benchTurn/2, f.enqueue) // warm up: plan the statements
					used, own, begun := server.CPU(), ownCPU(), time.Now()
					events := f.publish(b, rate, *benchTurn, f.enqueue)
					total := time.Since(begun)
					servers.add(side, events, total, server.CPU()-used, nil)
					nodes.add(side, events, total, ownCPU()-own, nil)
					f.close()
				}
			}
			servers.reportCPU(b)
			nodes.reportCPU(b)
		})
	}
}

// reportCPU reports the medians of the processor times of both sides, and of the ratio between
// them.
func (c *contest) reportCPU(b *testing.B) {
	var ratios []float64
	var sides [2][]float64
	for i := range c.turns[0] {
		for side := range sides {
			sides[side] = append(sides[side], c.turns[side][i].cpu)
		}
		ratios = append(ratios, c.turns[0][i].cpu/c.turns[1][i].cpu)
	}
	for side, name := range c.names {
		b.ReportMetric(median(sides[side]), name+"_us")
	}
	b.ReportMetric(median(ratios), c.names[0]+"_ratio")
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// BenchmarkNotify measures the basic cost of many nodes for a server. It measures the server's
// processor time for a notification to 1 and to 16 listening connections, and for prepared SELECTs
// on 1 connection and on 48 in turn.
func BenchmarkNotify(b *testing.B) {
	for _, way := range []struct {
		name         string
		sql          string
		listen, send int
	}{
		{"listeners=1", "select pg_notify('of_others', '')", 1, 1}, {"listeners=16", "select pg_notify('of_others', '')", 16, 1},
		{"select_by=1", "select beat from storageapi.heartbeats where node = 1", 0, 1}, {"select_by=48", "select beat from storageapi.heartbeats where node = 1", 0, 48},
	} {
		b.Run(way.name, func(b *testing.B) {
			_, server := durable(b)
			ctx, cancel := context.WithCancel(b.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			connect := func() *pgx.Conn {
				conn, err := pgx.Connect(ctx, server.DSN("postgres"))
				if err != nil {
					b.Fatal(err)
				}
				return conn
			}
			for i := range way.listen {
				conn := connect()
				if _, err := conn.Exec(ctx, fmt.Sprintf("listen node_%d", i)); err != nil {
					b.Fatal(err)
				}
				group.Go(func() { _, _ = conn.WaitForNotification(ctx) })
			}
			var senders []*pgx.Conn
			for range way.send {
				conn := connect()
				defer func() { _ = conn.Close(context.Background()) }()
				senders = append(senders, conn)
			}
			turn := func(n int) {
				const rate = 1000
				for i, begun := 0, time.Now(); i < n; i++ {
					time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / rate)))
					if _, err := senders[i%len(senders)].Exec(ctx, way.sql); err != nil {
						b.Fatal(err)
					}
				}
			}
			turn(10 * way.send)
			var list []float64
			for b.Loop() {
				used := server.CPU()
				turn(3000)
				list = append(list, float64((server.CPU()-used).Microseconds())/3000)
			}
			b.ReportMetric(median(list), "server_us")
		})
	}
}

// BenchmarkIdle reports the share of a core that an idle node uses, including its server processes.
// The share that the server and the process use without nodes is subtracted.
func BenchmarkIdle(b *testing.B) {
	for _, n := range []int{1, *benchNodes} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			p, server := durable(b)
			endpoints(b, openOn(b, p), 100)
			var own, backends []float64
			for b.Loop() {
				without, before := idle(server)
				f := newFleet(b, server, n)
				time.Sleep(*benchTurn / 2)
				with, node := idle(server)
				f.close()
				backends = append(backends, 100*(with-without)/float64(n))
				own = append(own, 100*(node-before)/float64(n))
			}
			b.ReportMetric(median(own), "node_percent")
			b.ReportMetric(median(backends), "backends_percent")
		})
	}
}

// idle returns the shares of a core that the server and this process use during one turn.
func idle(server *cluster.Cluster) (theirs, own float64) {
	before, ours, begun := server.CPU(), ownCPU(), time.Now()
	time.Sleep(*benchTurn)
	total := time.Since(begun).Seconds()
	return (server.CPU() - before).Seconds() / total, (ownCPU() - ours).Seconds() / total
}

// BenchmarkArrival reports the time from the publication of an event, on a node that owns no
// shards, to its claim by another node.
func BenchmarkArrival(b *testing.B) {
	p, server := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchEndpoints)
	inTransaction := func(told bool) publishing {
		return func(ctx context.Context, event driver.EncodedEvent) error {
			err := pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
				_, err := s.EnqueueTx(ctx, tx, event)
				return err
			})
			if err == nil && told {
				s.Published(event.Account)
			}
			return err
		}
	}
	for _, way := range []struct {
		name string
		do   publishing
	}{{"Publish", enqueueOn(s)}, {"PublishTx", inTransaction(false)}, {"PublishTx+Published", inTransaction(true)}} {
		for _, rate := range []int{200, 1000, 4000} {
			b.Run(fmt.Sprintf("%s/rate=%d", way.name, rate), func(b *testing.B) {
				f := newFleet(b, server, 1)
				defer f.close()
				do := func(int) publishing { return way.do }
				f.publish(b, rate, *benchTurn/4, do)
				f.sent, f.took = nil, nil
				for b.Loop() {
					f.publish(b, rate, *benchTurn, do)
				}
				b.ReportMetric(millis(quantile(f.sent, 0.5)), "sent_p50_ms")
				b.ReportMetric(millis(quantile(f.took, 0.5)), "p50_ms")
				b.ReportMetric(millis(quantile(f.took, 0.99)), "p99_ms")
			})
		}
	}
}

// BenchmarkInFlight measures claiming and settling while various numbers of other deliveries are in
// flight.
func BenchmarkInFlight(b *testing.B) {
	p, _ := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchEndpoints)
	fill(b, p, postgres.DefaultSchema, *benchUnder)
	for n := 0; n < *benchUnder; {
		tasks, err := storetest.WorkerOf(s).Claim(b.Context(), 1000)
		if err != nil {
			b.Fatal(err)
		}
		n += len(tasks)
	}
	const limit = 100
	var claims []time.Duration
	for b.Loop() {
		fill(b, p, postgres.DefaultSchema, 100*limit)
		for n := 0; n < 100*limit; {
			at := time.Now()
			tasks, err := storetest.WorkerOf(s).Claim(b.Context(), limit)
			if err != nil {
				b.Fatal(err)
			}
			if len(tasks) > 0 {
				claims = append(claims, time.Since(at))
				n += len(tasks)
			}
			var list []storetest.Settlement
			for _, task := range tasks {
				list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: at, Status: 200}})
			}
			if stale, err := storetest.WorkerOf(s).Settle(b.Context(), list); err != nil || len(stale) > 0 {
				b.Fatalf("Settle = %v, %v", stale, err)
			}
		}
	}
	b.ReportMetric(millis(quantile(claims, 0.5)), "claim_p50_ms")
	b.ReportMetric(millis(quantile(claims, 0.99)), "claim_p99_ms")
}
