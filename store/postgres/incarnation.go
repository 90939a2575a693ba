package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// What an incarnation does with a shard. It has those in memory that are not absent.
const (
	absent = iota
	served
	paused // nothing is claimed there, and it is about to be left
)

// An incarnation is a node from its registration until its rows are gone.
//
// No node leads. All compute from the same rows how many shards each is to have: who has more
// leaves some, who has fewer takes what is free. Of two that take a shard one finds, once it has
// the lock of its row, that it is not free.
type incarnation struct {
	*ownership
	id   int64
	made time.Time

	// These are guarded by the lock of the ownership.
	over      bool
	confirmed time.Time // when its last heartbeat that was answered was sent
	waits     bool      // a view was read while it balanced

	// seen is the oldest transaction whose changes it may not have read yet, set by what reads them.
	// The next heartbeat stores it.
	seen atomic.Int64

	balancing sync.Mutex // held by the goroutine that balances, which has these
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

// current reports, with the lock, whether the time of the incarnation lasts. It checks the wall
// clock, too, because the monotonic clock stops while the machine is suspended.
func (n *incarnation) current() bool {
	now := time.Now()
	return !n.over && now.Sub(n.confirmed) < n.lasts && now.Round(0).Sub(n.confirmed.Round(0)) < n.lasts
}

// live registers the incarnation, sends its heartbeats, and balances by what they read. It returns once
// the incarnation is over: ctx has ended, it could not register, its work has no answers, its row is gone, or the server was started again, perhaps without what it had committed last.
//
// A heartbeat whose answers never arrive must not keep the shards: once the incarnation's time may be over
// it only reads, until that is answered.
func (n *incarnation) live(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	var began time.Time // the server
	beat, confirmed, answered := addNode, time.Now(), true
	for next := confirmed; sleep(ctx, n.beatNow, time.Until(next)); sleep(ctx, nil, n.lasts/60) { // notifications come in numbers
		balances := n.balancing.TryLock() // before it looks: what a look sees must not change by this node's own doing
		if n.isStuck() {
			break
		}
		sent, send := time.Now(), beat
		if beat == renewNode && !answered && !n.isCurrent() {
			send = ""
		}
		var v view
		var err error
		if beat == addNode {
			err = n.prove(ctx)
		}
		if err == nil {
			v, err = n.look(ctx, send, n.id, n.lasts, n.seen.Load(), n.polls())
		}
		if err == nil && send == "" && slices.Contains(v.nodes, n.id) {
			answered = true
			if next = sent; balances {
				n.balancing.Unlock()
			}
			continue
		}
		answered = err == nil
		if err == nil && send != "" && (beat == addNode || v.began.Equal(began)) {
			beat, began, confirmed, next = renewNode, v.began, sent, sent.Add(n.lasts/4)
			n.confirm(sent, balances)
			if balances {
				group.Go(func() { n.balance(ctx, v) })
			}
			n.store.owned.setTrouble(troubleBeat, nil)
			continue
		}
		if balances {
			n.balancing.Unlock()
		}
		if err == nil || errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if !n.isCurrent() {
			n.store.owned.setTrouble(troubleBeat, err)
		}
		if beat == addNode {
			sleep(ctx, nil, n.lasts/24)
			break
		}
		n.store.waited(confirmed)
		next = time.Now().Add(n.lasts / 24)
	}
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	end()
	group.Wait()
	if n.ctx.Err() == nil { // else close deregisters, and settlements under way go on
		n.deregister()
		n.unload(which(func(shard int16) bool { return n.shards[shard] != absent }))
	}
}

func (n *incarnation) isCurrent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current()
}

func (n *incarnation) isStuck() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stuck()
}

// polls asks whether others need not notify this node until the next heartbeat.
func (n *incarnation) polls() bool {
	n.mu.Lock()
	nodes := n.nodes
	n.mu.Unlock()
	return n.queues.polls(nodes)
}

// confirm notes that the incarnation was alive when a heartbeat was sent, and whether it balances now.
func (n *incarnation) confirm(sent time.Time, balances bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.confirmed, n.waits = sent, !balances
}

// balance brings memory in line with a view, and takes or leaves shards until this node has its share of
// them. What it could not do the next does.
func (n *incarnation) balance(ctx context.Context, v view) {
	err := n.share(ctx, v)
	if ctx.Err() == nil {
		n.store.owned.shared(err) // before the next balancing, and before trimming, which may take a while
	}
	if ctx.Err() == nil && err == nil && n.shards[0] == served {
		short, cancel := context.WithTimeout(ctx, n.lasts/3)
		_ = n.store.trimChanges(short) // or the next time
		cancel()
	}
	n.balancing.Unlock()
	n.mu.Lock()
	if n.waits {
		n.hear()
	}
	n.mu.Unlock()
}

func (n *incarnation) share(ctx context.Context, v view) error {
	alive := n.removeDead(ctx, v)
	rank, _ := slices.BinarySearch(alive, n.id)
	share := (shards + len(alive) - 1 - rank) / len(alive)
	n.unload(which(func(shard int16) bool { return v.owners[shard] != n.id && n.shards[shard] != absent }))
	in := func(state uint8) []int16 {
		return which(func(shard int16) bool { return v.owners[shard] == n.id && n.shards[shard] == state })
	}
	leave, keep := in(paused), append(in(absent), n.leastBusy(in(served))...)
	if surplus := len(keep) - share; surplus > 0 {
		leave, keep = append(leave, keep[:surplus]...), keep[surplus:]
	}
	err := n.leave(ctx, leave)
	if err == nil && len(keep) < share {
		// Nodes of different ranks begin with different shards, so that they seldom try the same.
		free := which(func(shard int16) bool { return !slices.Contains(alive, v.owners[shard]) })
		at := rank * len(free) / len(alive)
		free = slices.Concat(free[at:], free[:at])
		var taken []int16
		taken, err = n.take(ctx, free[:min(share-len(keep), len(free))], v.gone())
		keep = append(keep, taken...)
	}
	return errors.Join(err, n.load(ctx, slices.DeleteFunc(keep, func(shard int16) bool { return n.shards[shard] == served })))
}

// removeDead removes nodes whose time is over, and returns the others.
func (n *incarnation) removeDead(ctx context.Context, v view) (alive []int64) {
	now, before := time.Now(), n.sightings
	n.sightings = make(map[int64]sighting)
	for i, node := range v.nodes {
		seen, ok := before[node]
		if !ok || seen.beat != v.beats[i] {
			seen = sighting{v.beats[i], now, ok}
		}
		n.sightings[node] = seen
		if node == n.id || !seen.dead(v.expired[i], now, n.lasts) {
			alive = append(alive, node)
		} else {
			_, _ = n.change(ctx, removeNode, node, seen.beat)
		}
	}
	return alive
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
		late, busy := time.Now().After(until), n.queues.underWay()
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
	_, err := n.change(ctx, releaseShards, n.id, list)
	if err == nil {
		n.unload(list)
	}
	return err
}

// take makes the node the owner of shards whose owners are gone, and returns those that it got.
func (n *incarnation) take(ctx context.Context, list []int16, gone []int64) (taken []int16, err error) {
	if len(list) > 0 {
		taken, err = n.change(ctx, takeShards, n.id, list, gone)
	}
	if err == nil && len(taken) < len(list) {
		n.hear()
	}
	return taken, err
}

// load begins to load shards that the node owns, and serves them. If that fails they are left again.
func (n *incarnation) load(ctx context.Context, list []int16) error {
	if len(list) == 0 {
		return nil
	}
	err := n.queues.loadShards(ctx, list)
	if err == nil {
		n.mark(list, served)
		return nil
	}
	n.unload(list)
	return errors.Join(err, n.release(ctx, list))
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

// which returns the shards for which is holds.
func which(is func(shard int16) bool) (list []int16) {
	for shard := range int16(shards) {
		if is(shard) {
			list = append(list, shard)
		}
	}
	return list
}
