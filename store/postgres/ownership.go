package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store"
)

const (
	nodeLasts  = 6 * time.Second // a node without a heartbeat for this long is dead
	leaveWait  = 2 * time.Second // shards are left with what is in flight after this
	leavePause = 50 * time.Millisecond
)

// ownersChanged is the notification that a node has joined, or has left shards.
const ownersChanged = "owners"

// The id of a node is its base, the same for as long as the Store is open, and the number of
// the incarnation.
const baseShift = 12

// shardQueues are what is pending in owned shards.
type shardQueues interface {
	loadShards(ctx context.Context, shards []int16) error // begins to
	pauseShards(shards []int16)
	underWay() map[int16]int // by shard
	polls(nodes int) bool    // whether others need not notify this node, of so many
	unloadShards(shards []int16)
}

// An ownership has this node own its share of the shards while it delivers. The node is a new
// incarnation, with an id of its own, each time it joins or was taken for dead.
//
// The table shard_owners says who owns what. An incarnation that has no row in nodes any more
// is over: what was its own is free, and what it settles, which locks the row first, fails.
type ownership struct {
	store   *Store
	queues  shardQueues
	lasts   time.Duration // nodeLasts
	base    int64         // of all incarnations
	beatNow chan struct{} // shards may be free, or the incarnation over

	// fence is read-locked by each settlement, once it has its connection. Changes of owners
	// lock it: on the server alone a queue of settlements could delay them without end.
	fence sync.RWMutex

	ctx    context.Context // until stop
	cancel context.CancelFunc
	group  sync.WaitGroup // deliver, and what it begins

	mu      sync.Mutex
	running bool // deliver is
	failing [works]failing
	newest  *incarnation // which may be over; at first one without an id, which is
	owners  [shards]int64
	pollers []int64   // nodes that need not be notified
	nodes   int       // how many there are
	viewed  time.Time // when these three were read
	asked   time.Time // for ownerOf
}

// The kinds of work without which a node delivers nothing.
const (
	workLook   = iota // reading the change feed
	workRead          // reading deliveries that are to be attempted
	workSettle        // settling
	workLoad          // reading pages of pending deliveries
	works
)

// failing counts calls of one kind of work without an answer in a row.
type failing struct {
	since time.Time // when the first of them began
	calls int
}

// start prepares an ownership. Nothing runs before deliver.
func (o *ownership) start(s *Store) {
	o.store, o.queues, o.lasts = s, s, nodeLasts
	o.beatNow = make(chan struct{}, 1)
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.base = 1 + rand.Int64N(1<<51-1)
	o.newest = &incarnation{over: true}
}

// stop ends what is under way.
func (o *ownership) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancel()
}

// close leaves all shards, once the store's steps have ended. It needs the pool.
func (o *ownership) close() {
	o.stop()
	o.group.Wait()
	if o.newest.id != 0 {
		o.newest.deregister()
	}
}

// node returns the id of the incarnation, or 0 if there is none or its time may be over: then
// no attempt may begin.
func (o *ownership) node() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.newest.current() {
		return o.newest.id
	}
	return 0
}

// incarnation returns the id of the newest incarnation, which may be over; 0: there was none.
func (o *ownership) incarnation() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest.id
}

// ownerOf returns the node that owned the shard when that was last read, 0 if none did, or if
// nothing was read yet, and whether it need not be notified. It does not wait: a node that owns no
// shards reads at most every 2 s, and only after a call.
func (o *ownership) ownerOf(shard int16) (node int64, polls bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !o.running && now.Sub(o.asked) >= o.lasts/3 && o.ctx.Err() == nil {
		o.asked = now
		o.group.Go(func() { _, _ = o.look(o.ctx, "") })
	}
	node = o.owners[shard]
	return node, time.Since(o.viewed) < o.lasts/2 && slices.Contains(o.pollers, node)
}

// lost is called when a settlement of an incarnation found no row of it.
func (o *ownership) lost(node int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if node == o.newest.id {
		o.newest.confirmed = time.Time{}
		wake(o.beatNow)
	}
}

// worked notes how work that began then has ended. An error that the server answers is progress: the way
// to it is open, and another node would get the same answer. Only the look is none if it took too long: a
// node that joins anew need not read the changes before.
func (o *ownership) worked(kind int, began time.Time, err error) {
	c := code(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, store.ErrClosed) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if began.Before(o.newest.made) {
		return // of an earlier incarnation
	}
	f := &o.failing[kind]
	if err == nil || c != "" && (kind != workLook || c != queryCanceled) {
		*f = failing{}
		return
	}
	if f.calls++; f.calls == 1 {
		f.since = began
	}
	if o.stuck() {
		o.hear()
	}
}

// stuck reports, with the lock, whether some kind of work has had no answer for so long that another node is
// to have the shards, although this node's heartbeats may arrive.
func (o *ownership) stuck() bool {
	return slices.ContainsFunc(o.failing[:], func(f failing) bool { return f.calls > 1 && time.Since(f.since) >= o.lasts*5/3 })
}

// shortly returns ctx with a short timeout if the last call of that kind had no answer: the next one shows
// whether any has.
func (o *ownership) shortly(ctx context.Context, kind int) (context.Context, context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing[kind].calls == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, o.lasts/3)
}

// saw notes that an incarnation has read all changes of transactions before this one. Another one, of
// a server that began anew to count, has not.
func (o *ownership) saw(id, before int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id == o.newest.id {
		o.newest.seen.Store(before)
	}
}

// hear is called when there may be shards to take or to leave.
func (o *ownership) hear() { wake(o.beatNow) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits for the duration, or until it is woken, and reports whether ctx goes on.
func sleep(ctx context.Context, woken <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// enter begins a call that stop ends and close waits for, with group.Done. It reports false once
// the store is closed.
func (o *ownership) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return false
	}
	o.group.Add(1)
	return true
}

// deliver lives one incarnation after the other until ctx ends, and gives the shards back.
func (o *ownership) deliver(ctx context.Context) {
	for n := o.next(ctx); n != nil; n = o.next(ctx) {
		n.live(ctx)
	}
}

// next returns a new incarnation, or nil once ctx has ended.
func (o *ownership) next(ctx context.Context) *incarnation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running = ctx.Err() == nil; !o.running {
		return nil
	}
	o.failing = [works]failing{}
	o.newest = &incarnation{ownership: o, made: time.Now(), id: o.base<<baseShift | (o.newest.id+1)&(1<<baseShift-1)}
	return o.newest
}
