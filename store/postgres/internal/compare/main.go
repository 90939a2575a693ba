//go:build unix

// Compare runs this library's queue and River's, https://riverqueue.com, in turns on
// one PostgreSQL server of their own that syncs to disk:
//
//	go run . -n 50000 -rounds 3
//
// It is a module of its own, so that nothing else depends on River.
//
// # What each does
//
// Both store a payload of 210 bytes, hand it out under a limit of so many at a time,
// do nothing with it, and record that. Neither is spared anything that it does for
// its users:
//
//   - An event here is three rows (the event, its body, and what is owed to the one
//     webhook that is subscribed) and can be published only once by its id. A job of
//     River's is one row. Many in a transaction are one event for 1,000 webhooks
//     here, and InsertManyFast there.
//   - A claim here goes fairly through 10,000 webhooks, 8 at a time of each at most,
//     and is leased; River's takes the oldest jobs. Settling deletes what was owed
//     and adds to the log of attempts; River updates the job, which it keeps.
//   - A node here is a loop that claims beside one that settles, as the dispatcher
//     has them, without it and without HTTP: that is measured elsewhere. A client of
//     River's runs a goroutine for each job, with its executor and completer around a
//     worker that does nothing. So what the database spends on a job compares better
//     than what the nodes do.
//
// River polls and fetches as its own benchmark has it: every 2 ms at most, and every
// 20 ms at least. What was worked is counted when it is recorded.
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

// A queue is what is compared.
type queue interface {
	name() string
	// insert inserts n, each in a transaction of its own.
	insert(ctx context.Context, n int) error
	// insertMany inserts n, many in a transaction.
	insertMany(ctx context.Context, n int) error
	// work works n that were inserted, with so many nodes which have at most so many
	// under way each.
	work(ctx context.Context, n, nodes, slots int) error
}

const (
	publishers = 64
	many       = 1000
)

var body = strings.Repeat(`{"a":1}`, 30)

// A plan says what is run.
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
		for _, q := range m.queues { // what that left
			if err := q.work(ctx, p.n, 4, many); err != nil {
				return err
			}
		}
	}
	return m.print(out)
}
