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
)

// A horizon is which transactions a statement saw: those before max, except those that ran.
type horizon struct {
	number   uint64 // horizons are numbered as they are read
	min, max int64
	running  []int64
}

// sees reports whether the statement saw what the transaction did, if that was committed.
func (s *horizon) sees(transaction int64) bool {
	return transaction < s.max && !slices.Contains(s.running, transaction)
}

// A look is when and what a node reads of what others changed.
type look struct {
	wanted    atomic.Bool // something was changed, by this node or as it heard
	woken     chan struct{}
	at        time.Time // of the last one
	number    uint64    // of the last horizon
	frequency frequency
}

// A changeRow is a row of changesSince or beginShards.
type changeRow struct {
	kind  int
	added int64
	shard int16
	queuedRow
	there bool // it is pending
}

// readChanges runs changesSince or beginShards.
func (s *Store) readChanges(ctx context.Context, sql string, args ...any) (list []changeRow, seen *horizon, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(sql), args...)
		if err != nil {
			return err
		}
		var r changeRow
		var recovered *bool
		var due *time.Time
		var attempts, before *int
		var running []int64
		list, seen = nil, nil
		_, err = pgx.ForEachRow(rows, []any{&r.kind, &r.added, &r.shard, &r.webhook, &r.event, &recovered, &due, &attempts, &before, &running}, func() error {
			if r.kind < 0 {
				s.owned.clock.set(*due)
				seen = &horizon{min: r.added, max: r.webhook, running: running}
				return nil
			}
			if r.there = recovered != nil; r.there {
				r.recovered, r.due, r.attempts, r.before = *recovered, *due, *attempts, *before
			}
			r.first = r.kind == changeFirst
			list = append(list, r)
			return nil
		})
		if err == nil && seen == nil {
			err = errors.New("postgres: a look has no snapshot")
		}
		return err
	})
	return list, seen, err
}

// hold waits until no other call looks or loads; let ends that.
func (o *ownedShards) hold(ctx context.Context) error {
	select {
	case o.looks <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failure(ctx, ctx.Err())
	}
}

func (o *ownedShards) let() { <-o.looks }

// lookIfDue reads what was changed, if something was or if it is time to ask, and returns when it will
// be time again.
func (s *Store) lookIfDue(ctx context.Context) (wait time.Duration, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	s.steps.RUnlock()
	o := &s.owned
	if err := o.hold(ctx); err != nil {
		return 0, err
	}
	defer o.let()
	every, since := o.look.frequency.every(s.options.poll), time.Since(o.look.at)
	if o.look.wanted.Load() || since >= every*5/8 {
		if since < lookPause {
			sleep(ctx, nil, lookPause-since)
		}
		began := time.Now()
		timed, cancel := s.ownership.shortly(ctx, workLook)
		err = s.look(timed)
		cancel()
		s.ownership.worked(workLook, began, err)
		every = o.look.frequency.every(s.options.poll)
	}
	return every*5/8 + rand.N(every/4+1), err
}

// lookPause is the least time between two looks: what is published meanwhile is read at once.
const lookPause = 2 * time.Millisecond

// look reads what was changed in the shards that are loaded.
func (s *Store) look(ctx context.Context) (err error) {
	o := &s.owned
	wanted := o.look.wanted.Swap(false)
	defer func() {
		if err != nil && wanted {
			o.look.wanted.Store(true)
		}
	}()
	node := s.ownership.incarnation()
	shards, from := o.served()
	if len(shards) == 0 {
		return nil
	}
	began := time.Now()
	list, seen, err := s.readChanges(ctx, changesSince, from.max, from.running, shards)
	if err != nil {
		return err
	}
	o.look.at = began
	list = slices.DeleteFunc(list, func(r changeRow) bool { return o.knows(&r) })
	o.look.frequency.looked(began, list, seen)
	if err := s.apply(ctx, once(list)); err != nil {
		return err
	}
	o.saw(shards, seen)
	s.ownership.saw(node, seen.min)
	return nil
}

// A deliveryPair are the numbers of a delivery's webhook and event.
type deliveryPair struct{ webhook, event int64 }

// once returns each delivery that became pending once, though several changes name it: the
// publishing of its event, say, and a recovery.
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

// knows reports whether the change was read already.
func (o *ownedShards) knows(r *changeRow) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	since := o.shards[r.shard]
	return since == nil || since.sees(r.added)
}

// saw notes up to where the changes of the shards, if they are still loaded, were read.
func (o *ownedShards) saw(shards []int16, seen *horizon) {
	o.look.number++
	seen.number = o.look.number
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		if o.shards[shard] != nil {
			o.shards[shard] = seen
		}
	}
}

// apply reports changes, after it has read the webhooks that they are of and that changed or are
// not known.
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

// maxLearned is how many webhooks are read by one statement: about half a MiB.
const maxLearned = 512

// learn reads what webhooks are now, and returns those that are not deleted.
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

// polls implements shardQueues.
func (s *Store) polls(nodes int) bool { return s.owned.look.frequency.polls(nodes) }
