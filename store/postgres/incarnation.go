package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What an incarnation does with a shard. It has those in memory that are not absent.
const (
	absent = iota
	served
	paused // nothing is claimed there, and it is about to be left
)

// An incarnation is a node from its registration until its rows are gone. One goroutine sends
// its heartbeats, another balances its shards.
//
// No node leads. All compute from the same rows how many shards each is to have: who has more
// leaves some, who has fewer takes what is free. Of two that take a shard one finds, once it has
// the lock of its row, that it is not free.
type incarnation struct {
	*ownership
	id    int64
	end   context.CancelFunc // of both goroutines
	began time.Time          // the server

	// These are of the goroutine that balances.
	shards    [shards]uint8
	sightings map[int64]sighting // of other nodes
}

// A sighting is the heartbeat of a node, when it was first seen, and whether there was another
// before.
type sighting struct {
	beat  int64
	at    time.Time
	later bool
}

// dead reports whether the time of a node is over. The server's clock may jump: if it is ahead,
// a heartbeat that was seen to change a moment ago counts; if it is behind, one that was not for
// as long as a node lasts.
func (s sighting) dead(expired bool, now time.Time, lasts time.Duration) bool {
	since := now.Sub(s.at)
	return since > lasts || expired && (!s.later || since > lasts/2)
}

// register adds the rows of the incarnation.
func (n *incarnation) register(ctx context.Context) error {
	sent := time.Now()
	err := n.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		if n.began, err = n.live(ctx, conn, addNode, n.id, n.lasts); err == nil {
			n.notify(ctx, conn)
		}
		return err
	})
	if err == nil {
		n.confirm(n.id, sent)
	}
	return err
}

// beat sends heartbeats until the incarnation is over: its row is gone, or the server was
// started again, perhaps without what it had committed last.
func (n *incarnation) beat(ctx context.Context) {
	defer n.end()
	confirmed := time.Now()
	for wait := n.lasts / 4; sleep(ctx, n.beatNow, wait); {
		sent := time.Now()
		var began time.Time
		err := n.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			began, err = n.live(ctx, conn, renewNode, n.id, n.lasts, n.seen.Load())
			return err
		})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, pgx.ErrNoRows), err == nil && !began.Equal(n.began):
			n.forget()
			return
		case err != nil:
			wait = n.lasts / 24
			n.store.waited(confirmed)
		default:
			confirmed, wait = sent, n.lasts/4-time.Since(sent)
			n.confirm(n.id, sent)
		}
		n.tell(err)
	}
}

// which returns the shards for which is holds.
func which(is func(shard int16) bool) (list []int16) {
	for shard := range int16(shards) {
		if is(shard) {
			list = append(list, shard)
		}
	}
	return list
}

// inMemory returns the shards that are in memory.
func (n *incarnation) inMemory() []int16 {
	return which(func(shard int16) bool { return n.shards[shard] != absent })
}

// idles reports whether the incarnation is over because nothing was claimed for long, and
// nothing is in flight.
func (n *incarnation) idles() bool {
	busy := n.queues.underWay()
	if slices.ContainsFunc(n.inMemory(), func(shard int16) bool { return busy[shard] > 0 }) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.claims() {
		return false
	}
	n.alive, n.ready = 0, false // claims that begin now wait for the next
	return true
}

// balance brings memory in line with the table, and takes or leaves shards until this node has
// its share of them.
func (n *incarnation) balance(ctx context.Context) error {
	v, err := n.look(ctx)
	if err == nil && n.removeDead(ctx, v) {
		v, err = n.look(ctx)
	}
	if err != nil {
		return err
	}
	rank, alive := slices.BinarySearch(v.nodes, n.id)
	if !alive {
		wake(n.beatNow)
		return errors.New("postgres: this node was taken for dead")
	}
	share := shards / len(v.nodes)
	if rank < shards%len(v.nodes) {
		share++
	}
	n.unload(which(func(shard int16) bool { return v.owners[shard] != n.id && n.shards[shard] != absent }))
	in := func(state uint8) []int16 {
		return which(func(shard int16) bool { return v.owners[shard] == n.id && n.shards[shard] == state })
	}
	leave, keep := in(paused), append(in(absent), n.leastBusy(in(served))...)
	if surplus := len(keep) - share; surplus > 0 {
		leave, keep = append(leave, keep[:surplus]...), keep[surplus:]
	}
	err = n.leave(ctx, leave)
	if err == nil && len(keep) < share {
		var taken []int16
		taken, err = n.take(ctx, v, rank, share-len(keep))
		keep = append(keep, taken...)
	}
	return errors.Join(err, n.load(ctx, slices.DeleteFunc(keep, func(shard int16) bool { return n.shards[shard] == served })))
}

// removeDead removes nodes whose time is over, and reports whether there were any.
func (n *incarnation) removeDead(ctx context.Context, v view) (found bool) {
	now, before := time.Now(), n.sightings
	n.sightings = make(map[int64]sighting)
	for i, node := range v.nodes {
		seen, ok := before[node]
		if !ok || seen.beat != v.beats[i] {
			seen = sighting{v.beats[i], now, ok}
		}
		n.sightings[node] = seen
		if node == n.id || !seen.dead(v.expired[i], now, n.lasts) {
			continue
		}
		found = true
		_ = n.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := n.change(ctx, conn, removeNode, node, seen.beat) // or by the next balancing
			return err
		})
	}
	return found
}

// leastBusy sorts shards by how much is in flight there.
func (n *incarnation) leastBusy(list []int16) []int16 {
	busy := n.queues.underWay()
	slices.SortStableFunc(list, func(a, b int16) int { return cmp.Compare(busy[a], busy[b]) })
	return list
}

// leave pauses shards, and releases them once nothing is in flight there, or after leaveWait.
// Those that it could not release stay paused, and are left by the next balancing.
func (n *incarnation) leave(ctx context.Context, list []int16) error {
	n.queues.pauseShards(list)
	n.mark(list, paused)
	for until := time.Now().Add(leaveWait); len(list) > 0; sleep(ctx, nil, leavePause) {
		late := time.Now().After(until)
		busy := n.queues.underWay()
		var free, others []int16
		for _, shard := range list {
			if late || busy[shard] == 0 {
				free = append(free, shard)
			} else {
				others = append(others, shard)
			}
		}
		if err := n.release(ctx, free); err != nil {
			return err
		}
		list = others
	}
	return nil
}

// release makes shards free for others, and unloads them.
func (n *incarnation) release(ctx context.Context, list []int16) error {
	if len(list) == 0 {
		return ctx.Err()
	}
	err := n.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return n.free(ctx, conn, releaseShards, n.id, list)
	})
	if err == nil {
		n.own(list, 0)
		n.unload(list)
	}
	return err
}

// take makes the node the owner of so many free shards, and returns those that it got. Nodes
// of different ranks begin with different ones, so that they seldom try the same.
func (n *incarnation) take(ctx context.Context, v view, rank, count int) (taken []int16, err error) {
	free := which(func(shard int16) bool { return v.owners[shard] == 0 })
	at := rank * len(free) / len(v.nodes)
	free = slices.Concat(free[at:], free[:at])
	if count = min(count, len(free)); count == 0 {
		return nil, nil
	}
	err = n.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		taken, err = n.change(ctx, conn, takeShards, n.id, free[:count], v.gone)
		return err
	})
	n.own(taken, n.id)
	if err == nil && len(taken) < count {
		wake(n.lookNow)
	}
	return taken, err
}

// load loads shards that the node owns, some at a time, and serves them. Those that fail are left
// again.
func (n *incarnation) load(ctx context.Context, list []int16) error {
	var failed []error
	for some := range slices.Chunk(list, loadAtOnce) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := n.queues.loadShards(ctx, some)
		if err == nil {
			n.mark(some, served)
			continue
		}
		n.fail(err)
		n.unload(some)
		failed = append(failed, err, n.release(ctx, some))
	}
	return errors.Join(failed...)
}

// unload forgets shards.
func (n *incarnation) unload(list []int16) {
	if len(list) > 0 {
		n.queues.unloadShards(list)
		n.mark(list, absent)
	}
}

// mark notes what the incarnation does with shards.
func (n *incarnation) mark(list []int16, state uint8) {
	for _, shard := range list {
		n.shards[shard] = state
	}
}
