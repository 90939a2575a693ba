//go:build unix

// Compare runs the queues of this library and of River, https://riverqueue.com, alternately on a
// separate PostgreSQL server that syncs to disk:
//
//	go run . -n 50000 -rounds 3
//
// It is a separate module, so that nothing else depends on River.
//
// # What each does
//
// Both queues store a payload of 210 bytes, hand it to a worker that does nothing, under a
// concurrency limit, and record the result. Each queue does everything that it does for its users:
//
//   - An event here is three rows (the event, its body, and the delivery to the one subscribed
//     webhook), and its id can be published only once. A River job is one row. Inserting many in a
//     transaction means one event for 1,000 webhooks here, and InsertManyFast there.
//   - A claim here selects due deliveries in the node's memory, by due time, and then loads their
//     events; River's claim takes the oldest jobs. Settling deletes the delivery and adds to the
//     log of attempts; River updates the job and keeps it.
//   - A node here is a claiming loop and a settling loop, as in the dispatcher, but without the
//     scheduler and HTTP, which are measured elsewhere. A River client runs a goroutine per job,
//     with its executor and completer around a worker that does nothing. So compare the database's
//     time per job rather than the nodes'.
//
// River polls and fetches as in its own benchmark: at most every 2 ms, and at least every 20 ms. A
// job counts as done once its result is recorded.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

func main() {
	p := plan{nodes: []int{1, 4}, slots: []int{100, 1000}}
	flag.IntVar(&p.n, "n", 50_000, "events or jobs in each run")
	flag.IntVar(&p.webhooks, "webhooks", 10_000, "webhooks that the events are for")
	flag.IntVar(&p.rounds, "rounds", 3, "how often each is run; the medians are printed")
	flag.Parse()
	if err := p.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A queue is one of the compared queues.
type queue interface {
	name() string
	// insert inserts n, one per call. Ours stores concurrent calls in one transaction.
	insert(ctx context.Context, n int) error
	// insertMany inserts n, many per transaction.
	insertMany(ctx context.Context, n int) error
	// work processes n inserted events or jobs with the given number of nodes. Each node has at
	// most slots of them in flight.
	work(ctx context.Context, n, nodes, slots int) error
}

const (
	publishers = 64
	many       = 1000
)

var body = strings.Repeat(`{"a":1}`, 30)

// A plan has the parameters of the runs.
type plan struct {
	n, webhooks, rounds int
	nodes, slots        []int
}

func (p *plan) run(ctx context.Context, out io.Writer) error {
	server, err := cluster.Start("shared_buffers=512MB", "max_wal_size=4GB")
	if err != nil {
		return err
	}
	defer server.Stop()
	pool, err := pgxpool.New(ctx, server.DSN("postgres")+" pool_max_conns=80")
	if err != nil {
		return err
	}
	defer pool.Close()
	ours, err := newOurs(ctx, pool, p.webhooks)
	if err != nil {
		return err
	}
	defer ours.close()
	theirs, err := newRivers(ctx, pool)
	if err != nil {
		return err
	}
	m := &meter{server: server, queues: []queue{ours, theirs}}
	for range p.rounds {
		for _, nodes := range p.nodes {
			for _, slots := range p.slots {
				if err := errors.Join(
					m.measure(fmt.Sprintf("insert one by one, %d publishers", publishers), p.n, func(q queue) error { return q.insert(ctx, p.n) }),
					m.measure(fmt.Sprintf("work, %d × %d slots", nodes, slots), p.n, func(q queue) error { return q.work(ctx, p.n, nodes, slots) }),
				); err != nil {
					return err
				}
			}
		}
		err := m.measure(fmt.Sprintf("insert %d at a time", many), p.n, func(q queue) error { return q.insertMany(ctx, p.n) })
		if err != nil {
			return err
		}
		for _, q := range m.queues { // process the events and jobs of insertMany
			if err := q.work(ctx, p.n, 4, many); err != nil {
				return err
			}
		}
	}
	return m.print(out)
}
