package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/store"
)

const (
	nodeLasts  = 6 * time.Second  // a node without a heartbeat for this long is dead
	nodeIdle   = 15 * time.Second // a node without claims for this long leaves
	leaveWait  = 2 * time.Second  // shards are left with what is in flight after this
	leavePause = 50 * time.Millisecond
	loadAtOnce = 16 // shards
)

// ownersChanged is the notification that a node has joined, or has left shards.
const ownersChanged = "owners"

// The id of a node is its base, the same for as long as the Store is open, and the number of
// the incarnation.
const baseShift = 12

func nodeBase(node int64) int64 { return node >> baseShift }

// shardQueues are the queues of owned shards, in memory.
type shardQueues interface {
	loadShards(ctx context.Context, shards []int16) error
	pauseShards(shards []int16)
	underWay() map[int16]int // by shard
	unloadShards(shards []int16)
}

// An ownership has this node own its share of the shards while it claims. The node is a new
// incarnation, with an id of its own, each time it joins or was taken for dead.
//
// The table shard_owners says who owns what. An incarnation that has no row in nodes any more
// is over: what was its own is free, and what it settles, which locks the row first, fails.
type ownership struct {
	store       *Store
	queues      shardQueues
	lasts, idle time.Duration // nodeLasts, nodeIdle
	base        int64         // of all incarnations
	lookNow     chan struct{} // shards may be free
	beatNow     chan struct{} // the incarnation may be over

	// seen is the oldest transaction whose changes this incarnation may not have read yet, set by
	// what reads them. The next heartbeat stores it.
	seen atomic.Int64

	// fence is read-locked by each settlement, once it has its connection. Releasing shards
	// locks it: on the server alone a queue of settlements could delay it without end.
	fence sync.RWMutex

	ctx    context.Context // until stop
	cancel context.CancelFunc
	group  sync.WaitGroup // run

	mu        sync.Mutex
	running   bool      // run is
	claimed   time.Time // when join was called last
	last      int64     // the newest incarnation
	alive     int64     // that, or 0 once it is over
	confirmed time.Time // when its last heartbeat that was answered was sent
	ready     bool      // it has loaded its first shards
	failed    error     // of loading later ones
	result    *joining  // the next
	owners    [shards]int64
	asked     time.Time // when owners were last read
}

// A joining is what calls of join wait for: the next result of a heartbeat, or of balancing.
type joining struct {
	done chan struct{}
	err  error
}

// start prepares an ownership. Nothing runs before the first join.
func (o *ownership) start(s *Store) {
	o.store, o.queues, o.lasts, o.idle = s, s, nodeLasts, nodeIdle
	o.lookNow, o.beatNow = make(chan struct{}, 1), make(chan struct{}, 1)
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.base = 1 + rand.Int64N(1<<51-1)
	o.result = &joining{done: make(chan struct{})}
}

// stop ends what is under way. Then join returns store.ErrClosed.
func (o *ownership) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancel()
}

// close leaves all shards, once the store's steps have ended. It needs the pool.
func (o *ownership) close() {
	o.stop()
	o.group.Wait()
	if o.last != 0 {
		o.deregister(o.last)
	}
}

// join begins a claim. It returns nil once the node has registered and loaded its shards, and
// until its time may be over. Joining goes on after ctx has ended. It returns an error if shards
// that were taken later could not be loaded, once: they are left again.
func (o *ownership) join(ctx context.Context) error {
	for {
		o.mu.Lock()
		o.claimed = time.Now()
		if o.ctx.Err() != nil {
			o.mu.Unlock()
			return store.ErrClosed
		}
		if o.ready && o.current() != 0 {
			err := o.failed
			o.failed = nil
			o.mu.Unlock()
			return err
		}
		if !o.running {
			o.running = true
			o.group.Go(o.run)
		}
		result := o.result
		o.mu.Unlock()
		select {
		case <-result.done:
			if result.err != nil && o.ctx.Err() == nil {
				return result.err
			}
		case <-ctx.Done():
			return failure(ctx, ctx.Err())
		case <-o.ctx.Done():
		}
	}
}

// tell ends the waiting of join: for good if there is an error, or the incarnation is ready.
func (o *ownership) tell(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result.err = err
	close(o.result.done)
	o.result = &joining{done: make(chan struct{})}
}

// node returns the id of the incarnation, or 0 if there is none or its time may be over: then
// nothing may be claimed.
func (o *ownership) node() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current()
}

// incarnation returns the id of the newest incarnation, which may be over; 0: there was none.
func (o *ownership) incarnation() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// current is node, with the lock. It checks the wall clock, too, because the monotonic clock
// stops while the machine is suspended.
func (o *ownership) current() int64 {
	now := time.Now()
	if now.Sub(o.confirmed) < o.lasts && now.Round(0).Sub(o.confirmed.Round(0)) < o.lasts {
		return o.alive
	}
	return 0
}

// ownerOf returns the node that owned the shard when that was last read, 0 if none did, or if
// nothing was read yet. It does not wait: a node that owns no shards reads at most every 2 s,
// and only after a call.
func (o *ownership) ownerOf(shard int16) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !o.running && now.Sub(o.asked) >= o.lasts/3 && o.ctx.Err() == nil {
		o.asked = now
		o.group.Go(func() { _, _ = o.look(o.ctx) })
	}
	return o.owners[shard]
}

// lost is called when a settlement of an incarnation found no row of it.
func (o *ownership) lost(node int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if node == o.alive {
		o.confirmed = time.Time{}
		wake(o.beatNow)
	}
}

// hear is called when there may be shards to take or to leave.
func (o *ownership) hear() { wake(o.lookNow) }

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

// run lives one incarnation after the other, while there are claims.
func (o *ownership) run() {
	for o.wanted() {
		if err := o.incarnate(); err != nil {
			o.tell(err)
			sleep(o.ctx, nil, o.lasts/24)
		}
	}
	o.tell(nil)
}

// wanted reports whether run goes on; if not, the next join starts it again.
func (o *ownership) wanted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = o.ctx.Err() == nil && o.claims()
	return o.running
}

// claims reports, with the lock, whether there was a claim lately: who finds nothing to claim
// comes again when it is time to look, which may be seldom.
func (o *ownership) claims() bool {
	return time.Since(o.claimed) < max(o.idle, 2*o.store.options.poll)
}

// incarnate registers an incarnation and balances its shards until it is over. It returns an error
// if it could not register.
func (o *ownership) incarnate() error {
	ctx, end := context.WithCancel(o.ctx)
	defer end()
	n := &incarnation{ownership: o, id: o.begin(), end: end}
	if err := n.register(ctx); err != nil {
		return err
	}
	var beats sync.WaitGroup
	beats.Go(func() { n.beat(ctx) })
	for wait := time.Duration(0); sleep(ctx, o.lookNow, wait) && !n.idles(); {
		wait = o.lasts / 4
		if err := n.balance(ctx); ctx.Err() == nil {
			if err != nil {
				wait = o.lasts / 12
			}
			o.balanced(err)
			if err == nil && n.shards[0] == served {
				short, cancel := context.WithTimeout(ctx, o.lasts/3)
				_ = n.store.trimChanges(short) // or the next time
				cancel()
			}
			sleep(ctx, nil, o.lasts/60) // notifications come in numbers
		}
	}
	end()
	beats.Wait()
	o.forget()
	if o.ctx.Err() != nil {
		return nil // close deregisters, and settlements under way go on
	}
	o.deregister(n.id)
	n.unload(n.inMemory())
	return nil
}

// begin returns the id of a new incarnation.
func (o *ownership) begin() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive = o.base<<baseShift | (o.last+1)&(1<<baseShift-1)
	o.last, o.confirmed = o.alive, time.Time{}
	o.seen.Store(0) // the server may have begun anew to count
	return o.alive
}

// saw notes that an incarnation has read all changes of transactions before this one. Another one, of
// a server that began anew to count, has not.
func (o *ownership) saw(id, before int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == id {
		o.seen.Store(before)
	}
}

// confirm notes that an incarnation was alive when a heartbeat was sent.
func (o *ownership) confirm(id int64, sent time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.alive == id {
		o.confirmed = sent
	}
}

// forget notes that the incarnation is over.
func (o *ownership) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive, o.ready, o.failed = 0, false, nil
}

// balanced notes the result of balancing.
func (o *ownership) balanced(err error) {
	o.mu.Lock()
	if err == nil && o.alive != 0 {
		if !o.ready {
			o.claimed = time.Now() // claims were waiting
		}
		o.ready, o.failed = true, nil
	}
	o.mu.Unlock()
	o.tell(err)
}

// own notes the owner of shards.
func (o *ownership) own(shards []int16, node int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		o.owners[shard] = node
	}
}

// fail notes that shards could not be loaded.
func (o *ownership) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = err
}
