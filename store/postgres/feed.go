package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres/internal/feed"
	"github.com/storageapi/storageapi/store/postgres/internal/pause"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

// feedReader is the state of this node's reads of the change feed.
type feedReader struct {
	wanted atomic.Bool   // this node, or a node that notified it, has changed something
	woken  chan struct{} // wakes the loop to recompute when the next read is due
	at     time.Time     // when the last read began
	number uint64        // number of the last snapshot
	polls  feed.PollPolicy
}

// A changeRow is a result row of changesSince or beginShards.
type changeRow struct {
	kind  int
	added int64
	shard int16
	queuedRow
	there bool // whether the delivery is pending
}

// readChanges runs changesSince or beginShards.
func (s *Store) readChanges(ctx context.Context, sql string, args ...any) (list []changeRow, seen *feed.Snapshot, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(sql), args...)
		if err != nil {
			return err
		}
		var r changeRow
		var recovered *bool
		var due *time.Time
		var attempts, before *int
		var text *string
		list, seen = nil, nil
		_, err = pgx.ForEachRow(rows, []any{&r.kind, &r.added, &r.shard, &r.webhook, &r.event, &recovered, &due, &attempts, &before, &text}, func() error {
			if r.kind < 0 {
				s.owned.clock.set(*due)
				seen, err = feed.ParseSnapshot(*text)
				return err
			}
			if r.there = recovered != nil; r.there {
				r.recovered, r.due, r.attempts, r.before = *recovered, *due, *attempts, *before
			}
			r.first = r.kind == changeFirst
			list = append(list, r)
			return nil
		})
		if err == nil && seen == nil {
			err = errors.New("postgres: the change feed has no snapshot")
		}
		return err
	})
	return list, seen, err
}

// beginReading waits until no other call reads the feed or begins loading, and then excludes such
// calls until endReading.
func (o *ownedShards) beginReading(ctx context.Context) error {
	select {
	case o.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failure(ctx, ctx.Err())
	}
}

func (o *ownedShards) endReading() { <-o.reading }

// readFeedIfDue reads the change feed if something has changed or a read is due, and returns the
// wait until the next read.
func (s *Store) readFeedIfDue(ctx context.Context) (wait time.Duration, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	s.steps.RUnlock()
	o := &s.owned
	if err := o.beginReading(ctx); err != nil {
		return 0, err
	}
	defer o.endReading()
	interval, since := o.reader.polls.Interval(s.options.poll), time.Since(o.reader.at)
	if o.reader.wanted.Load() || since >= interval*5/8 {
		if since < readPause {
			pause.Sleep(ctx, nil, readPause-since)
		}
		began := time.Now()
		timed, cancel := s.node.Shortly(ctx, shards.WorkFeed)
		err = s.readFeed(timed)
		cancel()
		s.worked(shards.WorkFeed, began, err)
		interval = o.reader.polls.Interval(s.options.poll)
	}
	return interval*5/8 + rand.N(interval/4+1), err
}

// readPause is the minimum time between two reads; one read gets all events published meanwhile.
const readPause = 2 * time.Millisecond

// readFeed reads the change feed, and reports the changes in the shards in memory.
func (s *Store) readFeed(ctx context.Context) (err error) {
	o := &s.owned
	wanted := o.reader.wanted.Swap(false)
	defer func() {
		if err != nil && wanted {
			o.reader.wanted.Store(true)
		}
	}()
	term := s.node.Newest()
	shards, from := o.served()
	if len(shards) == 0 {
		return nil
	}
	began := time.Now()
	list, seen, err := s.readChanges(ctx, changesSince, from.Max, from.Running, shards)
	if err != nil {
		return err
	}
	o.reader.at = began
	list = slices.DeleteFunc(list, func(r changeRow) bool { return o.wasRead(&r) })
	o.reader.polls.Record(began, transactionsOf(list), seen)
	if err := s.apply(ctx, once(list)); err != nil {
		return err
	}
	o.setSnapshot(shards, seen)
	s.node.Read(term, seen.Min)
	return nil
}

// transactionsOf returns how many transactions made the changes, which must be in feed order.
func transactionsOf(list []changeRow) (n int) {
	for i := range list {
		if i == 0 || list[i].added != list[i-1].added {
			n++
		}
	}
	return n
}

// A deliveryPair identifies a delivery by the numbers of its webhook and event.
type deliveryPair struct{ webhook, event int64 }

// once removes repeated deliveries that became pending through several changes, such as the
// publishing of the event and a recovery.
func once(list []changeRow) []changeRow {
	places := make(map[deliveryPair]int)
	kept := list[:0]
	for _, r := range list {
		pair := deliveryPair{r.webhook, r.event}
		place, known := places[pair]
		switch {
		case r.kind != changeAdded && r.kind != changeFirst:
			kept = append(kept, r)
		case !known:
			places[pair] = len(kept)
			kept = append(kept, r)
		case r.kind == changeFirst:
			kept[place] = r
		}
	}
	return kept
}

// wasRead reports whether the change has already been read or belongs to a shard that is not in
// memory.
func (o *ownedShards) wasRead(r *changeRow) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	since := o.shards[r.shard]
	return since == nil || since.Sees(r.added)
}

// setSnapshot records that the changes of the shards were read up to a snapshot. It ignores shards
// that are no longer in memory.
func (o *ownedShards) setSnapshot(shards []int16, seen *feed.Snapshot) {
	o.reader.number++
	seen.Number = o.reader.number
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		if o.shards[shard] != nil {
			o.shards[shard] = seen
		}
	}
}

// apply reports changes to the scheduler. It first reads the webhooks that have changed or are not
// in memory.
func (s *Store) apply(ctx context.Context, list []changeRow) error {
	o := &s.owned
	var nos []int64
	wanted := make(map[int64]bool)
	for i := range list {
		r := &list[i]
		switch {
		case r.kind == changeErased:
			o.erased(r.webhook)
		case r.kind == changeWebhook:
		case o.known(r.webhook) || !r.there && r.kind != changeProbe:
			continue
		}
		if !wanted[r.webhook] {
			wanted[r.webhook] = true
			nos = append(nos, r.webhook)
		}
	}
	found, err := s.learn(ctx, nos)
	if err == nil {
		o.reportChanges(list, found)
	}
	return err
}

func (o *ownedShards) known(no int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byNo[no] != nil
}

// maxLearned is the maximum number of webhooks that one statement reads, about half a MiB.
const maxLearned = 512

// learn reads the current state of webhooks, and returns the webhooks that still exist.
func (s *Store) learn(ctx context.Context, nos []int64) (found map[int64]decodedWebhook, err error) {
	found = make(map[int64]decodedWebhook)
	for nos := range slices.Chunk(nos, maxLearned) {
		rows, err := collect(ctx, s, scanOwned, ownedWebhooks, nos)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			r := &rows[i]
			webhook, err := s.webhook(&r.webhookRow)
			if err != nil {
				webhook = r.Webhook // without its secrets
			}
			found[r.no] = decodedWebhook{r.Version, &webhook, err}
			s.owned.learn(r, found[r.no])
		}
		for _, no := range nos {
			if _, ok := found[no]; !ok {
				s.owned.deleted(no)
			}
		}
	}
	return found, nil
}
