//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// rivers is River's queue.
type rivers struct {
	pool    *pgxpool.Pool
	inserts *river.Client[pgx.Tx] // works no jobs
}

type job struct {
	Body string `json:"body"`
}

func (job) Kind() string { return "noop" }

type worker struct{ river.WorkerDefaults[job] }

func (worker) Work(_ context.Context, j *river.Job[job]) error {
	if j.Args.Body != body {
		return fmt.Errorf("unexpected job body %q", j.Args.Body)
	}
	return nil
}

func newRivers(ctx context.Context, pool *pgxpool.Pool) (*rivers, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	inserts, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
	return &rivers{pool, inserts}, err
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))

func (*rivers) name() string { return "river" }

func (q *rivers) insert(ctx context.Context, n int) error {
	return inParallel(ctx, n, func(int) error {
		_, err := q.inserts.Insert(ctx, job{body}, nil)
		return err
	})
}

func (q *rivers) insertMany(ctx context.Context, n int) error {
	list := make([]river.InsertManyParams, many)
	for i := range list {
		list[i].Args = job{body}
	}
	for i := 0; i < n; i += many {
		if _, err := q.inserts.InsertManyFast(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

func (q *rivers) work(ctx context.Context, n, nodes, slots int) error {
	done := make(chan *river.Event, n)
	for range nodes {
		workers := river.NewWorkers()
		river.AddWorker(workers, worker{})
		client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
			Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
			Workers: workers, Logger: quiet,
			FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		events, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed}})
		defer cancel()
		if err := client.Start(ctx); err != nil {
			return err
		}
		defer func() { _ = client.Stop(context.WithoutCancel(ctx)) }()
		go func() {
			for event := range events {
				done <- event
			}
		}()
	}
	for range n {
		select {
		case event := <-done:
			if event.Kind != river.EventKindJobCompleted {
				return fmt.Errorf("a job failed: %v", event.Job.Errors)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return fmt.Errorf("no job was completed for a minute")
		}
	}
	return nil
}
