package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// parseHorizon reads min:max:running,….
func parseHorizon(text string) (s *horizon, err error) {
	s = &horizon{}
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return nil, fmt.Errorf("postgres: %q is no snapshot", text)
	}
	if s.min, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
		return nil, err
	}
	if s.max, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return nil, err
	}
	for running := range strings.SplitSeq(parts[2], ",") {
		if running == "" {
			continue
		}
		transaction, err := strconv.ParseInt(running, 10, 64)
		if err != nil {
			return nil, err
		}
		s.running = append(s.running, transaction)
	}
	return s, nil
}

// A look is when and what a node reads of what others changed.
type look struct {
	wanted atomic.Bool // something was changed, by this node or as it heard
	at     time.Time   // of the last one
	number uint64      // of the last horizon
}

// lookPause is the least time between two looks: what is published meanwhile is read at once.
const lookPause = 2 * time.Millisecond

// A changeRow is a row of changesSince or pendingOfShards.
type changeRow struct {
	kind  int
	added int64
	shard int16
	queuedRow
	there bool // it is pending
}

// collect reads the rows of changesSince or pendingOfShards.
func (o *ownedShards) collect(rows pgx.Rows) (list []changeRow, seen *horizon, err error) {
	var text *string
	var r changeRow
	var recovered *bool
	var due *time.Time
	var attempts, before *int
	_, err = pgx.ForEachRow(rows, []any{&r.kind, &r.added, &r.shard, &r.webhook, &r.event, &recovered, &due, &attempts, &before, &text}, func() (err error) {
		if text != nil {
			o.clock.set(*due)
			seen, err = parseHorizon(*text)
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
		err = fmt.Errorf("postgres: a look has no snapshot")
	}
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

// lookIfDue reads what was changed, if something was or if it is time to ask.
func (s *Store) lookIfDue(ctx context.Context) error {
	o := &s.owned
	if err := o.hold(ctx); err != nil {
		return err
	}
	defer o.let()
	since := time.Since(o.look.at)
	if !o.look.wanted.Load() && since < s.options.poll*3/4 {
		return nil
	}
	if since < lookPause {
		select {
		case <-time.After(lookPause - since):
		case <-ctx.Done():
			return failure(ctx, ctx.Err())
		}
	}
	return s.look(ctx)
}

// lookNow reads what was changed before the call.
func (s *Store) lookNow(ctx context.Context) error {
	if err := s.owned.hold(ctx); err != nil {
		return err
	}
	defer s.owned.let()
	return s.look(ctx)
}

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
	var list []changeRow
	var seen *horizon
	began := time.Now()
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(changesSince), from.max, from.running, shards)
		if err == nil {
			list, seen, err = o.collect(rows)
		}
		return err
	})
	if err != nil {
		return err
	}
	o.look.at = began
	list = once(slices.DeleteFunc(list, func(r changeRow) bool { return o.knows(&r) }))
	if err := s.apply(ctx, list); err != nil {
		return err
	}
	o.saw(shards, seen)
	s.ownership.saw(node, seen.min)
	return s.endExpiredOf(ctx, list)
}

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

// apply tells the queue of changes, after it has read the webhooks that they are of.
func (s *Store) apply(ctx context.Context, list []changeRow) error {
	o := &s.owned
	var nos []int64
	wanted := make(map[int64]bool)
	for i := range list {
		r := &list[i]
		known := o.known(r.webhook)
		if !wanted[r.webhook] && (!known && (r.there || r.kind == changeProbe) || known && r.kind != changeAdded) {
			wanted[r.webhook] = true
			nos = append(nos, r.webhook)
		}
	}
	if err := s.learn(ctx, nos); err != nil {
		return err
	}
	for i := range list {
		switch r := &list[i]; {
		case r.kind == changeAdded && r.there:
			o.add(&r.queuedRow, false)
		case r.kind == changeFirst:
			if r.there {
				o.add(&r.queuedRow, true)
			}
			o.probe(r.webhook)
		case r.kind == changeProbe:
			o.probe(r.webhook)
		}
	}
	return nil
}

func (o *ownedShards) known(no int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byNo[no] != nil
}

// probe asks for a probe of a webhook.
func (o *ownedShards) probe(no int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.byNo[no]; w != nil {
		o.queue.Probe(w.id)
	}
}

// maxLearned is how many webhooks are read by one statement.
const maxLearned = 4096

// learn reads what webhooks are now.
func (s *Store) learn(ctx context.Context, nos []int64) error {
	for nos := range slices.Chunk(nos, maxLearned) {
		var list []ownedRow
		err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			rows, err := s.planned(conn).Query(ctx, s.sql(ownedWebhooks), nos)
			if err != nil {
				return err
			}
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r ownedRow, err error) { return r, row.Scan(r.fields()...) })
			return err
		})
		if err != nil {
			return err
		}
		for i := range list {
			s.owned.learn(&list[i])
		}
	}
	return nil
}

// endExpiredOf ends the pending deliveries whose payloads were purged, as the changes tell.
func (s *Store) endExpiredOf(ctx context.Context, list []changeRow) error {
	var nos, events []int64
	for i := range list {
		if r := &list[i]; r.kind == changeExpired && r.there {
			nos, events = append(nos, r.webhook), append(events, r.event)
		}
	}
	if len(nos) == 0 {
		return nil
	}
	return s.endExpired(ctx, nos, events)
}

// loadStep is how many shards are loaded by one statement.
const loadStep = 16

// loadShards reads what is pending in shards that this node has taken, and serves them. What it
// has of them in memory already is read anew. If it returns an error it serves none of them.
func (s *Store) loadShards(ctx context.Context, shards []int16) error {
	if err := s.owned.hold(ctx); err != nil {
		return err
	}
	defer s.owned.let()
	s.unloadShards(shards)
	if err := s.forgetForeign(ctx); err != nil {
		return err
	}
	for step := range slices.Chunk(shards, loadStep) {
		if err := s.loadStep(ctx, step); err != nil {
			s.unloadShards(shards)
			return err
		}
	}
	s.owned.look.wanted.Store(true)
	return nil
}

func (s *Store) loadStep(ctx context.Context, shards []int16) error {
	o := &s.owned
	o.mu.Lock()
	for _, shard := range shards {
		o.shards[shard], o.paused[shard] = &horizon{}, true
	}
	o.mu.Unlock()
	var list []changeRow
	var seen *horizon
	err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(pendingOfShards), shards)
		if err == nil {
			list, seen, err = o.collect(rows)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.apply(ctx, list); err != nil {
		return err
	}
	o.saw(shards, seen)
	o.serve(shards)
	return nil
}

// serve ends that claims have nothing of the shards.
func (o *ownedShards) serve(shards []int16) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		delete(o.paused, shard)
	}
	for _, w := range o.byNo {
		if w.claimable && slices.Contains(shards, w.shard) {
			o.queue.Resume(w.id)
		}
	}
}
