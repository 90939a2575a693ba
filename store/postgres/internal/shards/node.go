package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store/postgres/internal/pause"
)

// Count is how many shards there are.
const Count = 256

const (
	// NodeLasts is the default of [Node.Lasts].
	NodeLasts = 6 * time.Second

	leaveWait  = 2 * time.Second // shards are left with what is in flight after this
	leavePause = 50 * time.Millisecond
)

// The number of a term is the base of its node, the same for as long as the Store is open, and a counter.
const baseShift = 12

// BaseOf returns the number that all terms of a node have in common.
func BaseOf(term int64) int64 { return term >> baseShift }

// A Beat is what is written before a view is read.
type Beat int

const (
	NoBeat   Beat = iota // nothing
	Register             // the term is registered
	Renew                // its heartbeat
)

// A Heartbeat is what a term says of itself.
type Heartbeat struct {
	Term  int64
	Lasts time.Duration // until when it is alive, counted from now by the database's clock
	Read  int64         // it has read all changes of transactions before this one
	Busy  bool          // it reads changes so often that it need not be notified
}

// A View is what one statement reads, all of one moment.
type View struct {
	Nodes, Beats []int64   // the terms that are registered, and the counters of their heartbeats
	Expired      []bool    // their time is over by the database's clock
	Busy         []int64   // terms that need not be notified
	Owners       []int64   // of each shard, 0: none; some may have been removed
	Began        time.Time // when the server was started
}

// gone returns 0, and owners that were removed and have left their numbers.
func (v *View) gone() []int64 {
	return slices.DeleteFunc(append(slices.Clone(v.Owners), 0), func(owner int64) bool { return slices.Contains(v.Nodes, owner) })
}

// A Database has what all nodes agree on. Each call takes a third of Node.Lasts at most. If it fails, or
// its result is unknown, nothing is undone: the next view shows what is.
type Database interface {
	// Prove returns nil once packets of all sizes pass both ways. There are networks that only small
	// ones pass: a node there would take shards and deliver nothing.
	Prove(ctx context.Context) error

	// View writes a beat and reads a view, in one transaction. It returns ErrNoTerm if the term that is
	// to be renewed is not registered.
	View(ctx context.Context, beat Beat, h Heartbeat) (View, error)

	// Take makes the term the owner of those of the shards whose owners are among gone, and returns them.
	Take(ctx context.Context, term int64, shards []int16, gone []int64) ([]int16, error)

	// Release makes shards of the term free. It waits for settlements of the term.
	Release(ctx context.Context, term int64, shards []int16) error

	// Remove removes a term and makes its shards free, if its heartbeat is still that one or that is nil.
	// It waits for settlements of the term.
	Remove(ctx context.Context, term int64, beat *int64) error

	// Trim removes changes that all nodes have read.
	Trim(ctx context.Context) error
}

// ErrNoTerm is returned by [Database.View].
var ErrNoTerm = errors.New("the term is not registered")

// A Host has what is pending in the shards of a node in memory.
type Host interface {
	LoadShards(ctx context.Context, shards []int16) error // begins to
	PauseShards(shards []int16)
	UnloadShards(shards []int16)
	UnderWay() map[int16]int // attempts by shard
	IsBusy() bool            // whether other nodes need not notify this one

	BeatEnded(err error)        // after heartbeats: nil, or why none was answered for Lasts
	ShareEnded(err error)       // after the shares were computed anew
	Unanswered(since time.Time) // a heartbeat that was answered then is the last one so far
}

// A Node owns its share of the shards while it delivers. It does so for one term after another.
type Node struct {
	// These must not be changed once Deliver was called.
	Database Database
	Host     Host
	Lasts    time.Duration // a node without a heartbeat for this long is dead

	base    int64         // of all terms
	beatNow chan struct{} // shards may be free, or the term over

	ctx    context.Context // until Stop
	cancel context.CancelFunc
	group  sync.WaitGroup // Deliver, and what it begins

	mu      sync.Mutex
	running bool // Deliver is
	failing [works]failing
	newest  *term // which may be over; at first one without a number, which is
	owners  [Count]int64
	busy    []int64   // terms that need not be notified
	viewed  time.Time // when these two were read
	asked   time.Time // for OwnerOf
}

// Work is a kind of work without which a node delivers nothing.
type Work int

const (
	WorkFeed   Work = iota // reading the change feed
	WorkLoad               // reading deliveries that are to be attempted
	WorkSettle             // settling
	WorkPage               // reading pages of pending deliveries
	works
)

// failing counts calls of one kind of work without an answer in a row.
type failing struct {
	since time.Time // when the first of them began
	calls int
}

// New returns a node. Nothing runs before Deliver.
func New(database Database, host Host) *Node {
	n := &Node{Database: database, Host: host, Lasts: NodeLasts, beatNow: make(chan struct{}, 1), base: 1 + rand.Int64N(1<<51-1), newest: &term{over: true}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Base returns what all terms of the node have in common, see [BaseOf].
func (n *Node) Base() int64 { return n.base }

// Context returns a context that ends when Stop is called.
func (n *Node) Context() context.Context { return n.ctx }

// Stop ends what is under way.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cancel()
}

// Close leaves all shards, once settlements have ended.
func (n *Node) Close() {
	n.Stop()
	n.group.Wait()
	if n.newest.id != 0 {
		n.newest.deregister()
	}
}

// Abandon stops the node as if its process had ended: others remove its term.
func (n *Node) Abandon() {
	n.Stop()
	n.group.Wait()
	n.newest = &term{over: true}
}

// Go runs a function that ends with the context that it is given. Close waits for it.
func (n *Node) Go(run func(ctx context.Context)) { n.group.Go(func() { run(n.ctx) }) }

// Enter begins a call that Close waits for until leave is called. It reports false once Stop was called.
func (n *Node) Enter() (leave func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return nil, false
	}
	n.group.Add(1)
	return n.group.Done, true
}

// Delivers reports whether Deliver is running.
func (n *Node) Delivers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

// Current returns the number of the term, or 0 if there is none or its time may be over: then no attempt
// may begin.
func (n *Node) Current() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.newest.current() {
		return n.newest.id
	}
	return 0
}

// Newest returns the number of the newest term, which may be over; 0: there was none.
func (n *Node) Newest() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest.id
}

// OwnerOf returns the term that owned the shard when that was last read, 0 if none did, or if
// nothing was read yet, and whether it need not be notified. It does not wait: a node that owns no
// shards reads at most every 2 s, and only after a call.
func (n *Node) OwnerOf(shard int16) (owner int64, busy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); !n.running && now.Sub(n.asked) >= n.Lasts/3 && n.ctx.Err() == nil {
		n.asked = now
		n.group.Go(func() { _, _ = n.view(n.ctx, NoBeat, Heartbeat{}) })
	}
	owner = n.owners[shard]
	return owner, time.Since(n.viewed) < n.Lasts/2 && slices.Contains(n.busy, owner)
}

// view reads a view, and keeps the owners.
func (n *Node) view(ctx context.Context, beat Beat, h Heartbeat) (v View, err error) {
	began := time.Now()
	v, err = n.Database.View(ctx, beat, h)
	if err == nil && len(v.Owners) != Count {
		err = fmt.Errorf("postgres: %d shards have owners instead of %d", len(v.Owners), Count)
	}
	if err != nil {
		return v, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy, n.viewed = v.Busy, began
	for shard, owner := range v.Owners {
		if !slices.Contains(v.Nodes, owner) {
			owner = 0
		}
		n.owners[shard] = owner
	}
	return v, nil
}

// Gone is called when a settlement of a term found no row of it.
func (n *Node) Gone(term int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if term == n.newest.id {
		n.newest.confirmed = time.Time{}
		n.Beat()
	}
}

// Worked records how work that began then has ended: whether the database answered.
func (n *Node) Worked(kind Work, began time.Time, answered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began.Before(n.newest.made) {
		return // of an earlier term
	}
	f := &n.failing[kind]
	if answered {
		*f = failing{}
		return
	}
	if f.calls++; f.calls == 1 {
		f.since = began
	}
	if n.stuck() {
		n.Beat()
	}
}

// stuck reports, with the lock, whether some kind of work has had no answer for so long that another node is
// to have the shards, although this node's heartbeats may arrive.
func (n *Node) stuck() bool {
	return slices.ContainsFunc(n.failing[:], func(f failing) bool { return f.calls > 1 && time.Since(f.since) >= n.Lasts*5/3 })
}

// Shortly returns ctx with a short timeout if the last call of that kind had no answer: the next one shows
// whether any has.
func (n *Node) Shortly(ctx context.Context, kind Work) (context.Context, context.CancelFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing[kind].calls == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, n.Lasts/3)
}

// Read records that a term has read all changes of transactions before this one. Another term, of a
// server that began anew to count, has not.
func (n *Node) Read(term, before int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if term == n.newest.id {
		n.newest.read.Store(before)
	}
}

// Beat has the node send a heartbeat soon, and compute its share: there may be shards to take or to leave.
func (n *Node) Beat() { pause.Wake(n.beatNow) }

// Deliver owns shards for one term after the other until ctx ends, and gives the shards back.
func (n *Node) Deliver(ctx context.Context) {
	for t := n.next(ctx); t != nil; t = n.next(ctx) {
		t.live(ctx)
	}
}

// next returns a new term, or nil once ctx has ended.
func (n *Node) next(ctx context.Context) *term {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running = ctx.Err() == nil; !n.running {
		return nil
	}
	n.failing = [works]failing{}
	n.newest = &term{Node: n, made: time.Now(), id: n.base<<baseShift | (n.newest.id+1)&(1<<baseShift-1)}
	return n.newest
}
