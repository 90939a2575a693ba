package postgres

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// The kinds of troubles that keep a node from reporting what is pending.
const (
	troubleJoin = iota // it cannot register, or lost its shards
	troubleLook        // the change feed cannot be read
	troubleLoad        // pages of a shard cannot be read
	troubles
)

const (
	retryLook    = 20 * time.Millisecond // after a look that failed: the waits double
	retryLookMax = time.Second
)

var errClaims = errors.New("postgres: claims and Deliver on one Store: open another one")

// Deliver implements [webhooks.Deliveries]. It makes this process a node that owns shards: an
// equal part of them. A group is a shard.
//
// It returns an error that wraps [ErrClock] once this node's clock differs too much from the
// database's. Other errors it reports as trouble, and tries again.
func (s *Store) Deliver(ctx context.Context, to webhooks.Scheduler) error {
	if !s.ownership.enter() {
		return store.ErrClosed
	}
	defer s.ownership.group.Done()
	select {
	case s.owned.turn <- struct{}{}:
		defer func() { <-s.owned.turn }()
	case <-s.ownership.ctx.Done():
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.ownership.runs() {
		return errClaims
	}
	delivering, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.ownership.ctx, stop)()
	s.owned.begin(to)
	defer s.owned.end()
	err := s.looks(delivering)
	switch {
	case s.ownership.ctx.Err() != nil:
		return store.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// looks owns shards and reports what changes there until ctx ends, or this node's clock is wrong.
func (s *Store) looks(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o := &s.owned
	owning, again := false, retryLook
	for ctx.Err() == nil {
		err := s.checkClock(ctx)
		if errors.Is(err, ErrClock) {
			return err
		}
		if err == nil && !owning {
			owning = true
			group.Go(func() { s.ownership.deliver(ctx) })
			group.Go(func() { s.wake(ctx, func() {}) })
		}
		var pause time.Duration
		if err == nil {
			began := time.Now()
			timed, cancel := s.ownership.shortly(ctx, workLook)
			pause, err = s.lookIfDue(timed)
			cancel()
			s.ownership.worked(workLook, began, err)
		}
		if ctx.Err() != nil {
			break
		}
		o.mu.Lock()
		o.trouble(troubleLook, err)
		o.mu.Unlock()
		if again = min(2*again, retryLookMax); err == nil {
			again = retryLook
			sleep(ctx, o.look.woken, pause)
		} else {
			sleep(ctx, nil, again)
		}
	}
	return nil
}

// want has the next look begin soon.
func (o *ownedShards) want() {
	o.look.wanted.Store(true)
	o.look.wake()
}

// wake has the node compute anew when to look.
func (l *look) wake() { wake(l.woken) }

// begin has what is pending reported to a scheduler, and end no longer.
func (o *ownedShards) begin(to webhooks.Scheduler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.feed, o.troubles, o.told, o.joined, o.complete = to, [troubles]error{}, nil, false, false
}

func (o *ownedShards) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.feed = nil
}

func (o *ownedShards) delivers() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.feed != nil
}

// joining notes how the last try to own shards has ended, and whether the first ones have begun to load.
func (o *ownedShards) joining(ready bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.joined = o.joined || ready
	o.trouble(troubleJoin, err)
}

// trouble notes, with the lock, a trouble or the end of one, and reports the first one, and
// once all have ended and all shards are loaded.
func (o *ownedShards) trouble(kind int, err error) {
	o.troubles[kind] = err
	err = cmp.Or(o.troubles[troubleJoin], o.troubles[troubleLook], o.troubles[troubleLoad])
	switch {
	case o.feed == nil:
	case err != nil && o.told == nil:
		o.told = err
		o.feed.Trouble(err)
	case err == nil && o.joined && len(o.loads.of) == 0 && (o.told != nil || !o.complete):
		o.told, o.complete = nil, true
		o.feed.Trouble(nil)
	}
}

// Unreported implements [webhooks.Deliveries]: 0.1 s for a million.
func (s *Store) Unreported(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	if err := s.lookNow(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	args := []any{append([]int16{}, s.owned.loaded()...)}
	sql := unreported
	if webhookID != "" {
		sql, args = unreportedOf, append(args, webhookID)
	}
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var oldest *time.Time
		if err := s.planned(conn).QueryRow(ctx, s.sql(sql), args...).Scan(&backlog.Pending, &oldest); err != nil {
			return err
		}
		backlog.OldestDue = loaded(oldest)
		if webhookID != "" {
			return nil
		}
		return s.planned(conn).QueryRow(ctx, s.sql(`select count(*) from storageapi.webhooks where held`)).Scan(&backlog.Held)
	})
	if err != nil {
		return webhooks.Backlog{}, err
	}
	return backlog, nil
}

// unreported counts what is pending in the shards but $1, and of that the oldest due time of
// what can be sent; unreportedOf, of the webhook $2.
const (
	unreported   = countUnreported + `join storageapi.pending p on p.webhook = w.no where p.shard <> all($1::smallint[])`
	unreportedOf = countUnreported + `cross join lateral (select due, shard, attempts, before from storageapi.pending where webhook = w.no offset 0) p
		where w.id = $2 and p.shard <> all($1::smallint[])`

	countUnreported = `
		select count(*), min(least(p.due, ` + confirmedNow + `)) filter (where w.active and not w.held and (p.attempts = p.before or p.due <= ` + confirmedNow + `))
		from storageapi.webhooks w `
)

// lookNow reports what calls that have returned did.
func (s *Store) lookNow(ctx context.Context) error {
	if err := s.owned.hold(ctx); err != nil {
		return err
	}
	defer s.owned.let()
	return s.look(ctx)
}

// Ping implements [webhooks.Deliveries].
func (s *Store) Ping(ctx context.Context) error {
	_, err := only(ctx, s, scanInt, `select max(version) from storageapi.versions`)
	return err
}
