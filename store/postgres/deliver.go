package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/pause"
)

const (
	retryRead    = 20 * time.Millisecond // first pause after a failed read of the feed; doubles
	retryReadMax = time.Second
)

// Deliver implements [driver.Deliveries]. It makes this process a node that owns an equal part of
// the shards. Each shard is one group of the scheduler.
//
// It returns an error that wraps [ErrClock] once this node's clock differs too much from the
// database's. It reports other errors to the scheduler as trouble, and retries.
func (s *Store) Deliver(ctx context.Context, to driver.Scheduler) error {
	leave, ok := s.node.Enter()
	if !ok {
		return store.ErrClosed
	}
	defer leave()
	select {
	case s.owned.turn <- struct{}{}:
		defer func() { <-s.owned.turn }()
	case <-s.node.Context().Done():
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	delivering, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.node.Context(), stop)()
	s.owned.begin(to)
	defer s.owned.end()
	err := s.deliver(delivering)
	switch {
	case s.node.Context().Err() != nil:
		return store.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// deliver owns shards and reports their changes until ctx ends or this node's clock is wrong.
func (s *Store) deliver(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o := &s.owned
	owning, again := false, retryRead
	for ctx.Err() == nil {
		err := s.checkClock(ctx)
		if errors.Is(err, ErrClock) {
			return err
		}
		if err == nil && !owning {
			owning = true
			group.Go(func() { s.node.Deliver(ctx) })
			group.Go(func() { s.listens(ctx) })
		}
		var delay time.Duration
		if err == nil {
			delay, err = s.readFeedIfDue(ctx)
		}
		if err == nil {
			err = s.keepObserving(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		o.setTrouble(troubleFeed, err)
		if again = min(2*again, retryReadMax); err == nil {
			again = retryRead
			pause.Sleep(ctx, o.reader.woken, delay)
		} else {
			pause.Sleep(ctx, nil, again)
		}
	}
	return nil
}

// want requests a read of the change feed.
func (o *ownedShards) want() {
	o.reader.wanted.Store(true)
	o.reader.wake()
}

// wake makes the loop recompute when the next read is due.
func (r *feedReader) wake() { pause.Wake(r.woken) }

// Unreported implements [driver.Deliveries]. It takes 0.1 s for a million pending deliveries.
func (s *Store) Unreported(ctx context.Context, webhookID string) (backlog driver.Backlog, err error) {
	if err := s.readFeedNow(ctx); err != nil {
		return driver.Backlog{}, err
	}
	args := []any{append([]int16{}, s.owned.loaded()...)}
	sql := unreported
	if webhookID != "" {
		sql, args = unreportedOf, append(args, webhookID)
	}
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		err := s.planned(conn).QueryRow(ctx, s.sql(sql), args...).Scan(&backlog.Pending, (*instant)(&backlog.OldestDue))
		if err != nil || webhookID != "" {
			return err
		}
		return s.planned(conn).QueryRow(ctx, s.sql(`select count(*) from storageapi.webhooks where held`)).Scan(&backlog.Held)
	})
	if err != nil {
		return driver.Backlog{}, err
	}
	return backlog, nil
}

// unreported selects the number of pending deliveries outside the shards $1, and the oldest due
// time of those deliveries that can be sent. unreportedOf selects the same for the webhook $2.
const (
	unreported   = countUnreported + `join storageapi.pending p on p.webhook = w.no where p.shard <> all($1::smallint[])`
	unreportedOf = countUnreported + `cross join lateral (select due, shard, attempts, before from storageapi.pending where webhook = w.no offset 0) p
		where w.id = $2 and p.shard <> all($1::smallint[])`

	countUnreported = `
		select count(*), min(least(p.due, ` + confirmedNow + `)) filter (where w.active and not w.held and coalesce(w.paused_until <= ` + confirmedNow + `, true) and (p.attempts = p.before or p.due <= ` + confirmedNow + `))
		from storageapi.webhooks w `
)

// readFeedNow reads the change feed. Afterwards the changes of every call that returned before
// readFeedNow began are reported.
func (s *Store) readFeedNow(ctx context.Context) error {
	if err := s.owned.beginReading(ctx); err != nil {
		return err
	}
	defer s.owned.endReading()
	return s.readFeed(ctx)
}

// Ping implements [driver.Deliveries].
func (s *Store) Ping(ctx context.Context) error {
	_, err := only(ctx, s, scan[int], `select max(version) from storageapi.versions`)
	return err
}
