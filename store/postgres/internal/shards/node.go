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

// Count is the number of shards.
const Count = 256

const (
	// NodeLasts is the default of [Node.Lasts].
	NodeLasts = 6 * time.Second

	leaveWait  = 2 * time.Second // after this time shards are released despite attempts in flight
	leavePause = 50 * time.Millisecond
)

// The number of a term consists of its node's base, which is constant while the Store is open, and
// a counter of baseShift bits.
const baseShift = 12

// BaseOf returns the part of the number that all terms of a node share.
func BaseOf(term int64) int64 { return term >> baseShift }

// A Beat is the write that precedes reading a view.
type Beat int

const (
	NoBeat   Beat = iota // nothing
	Register             // register the term
	Renew                // renew its heartbeat
)

// A Heartbeat is the state that a term publishes about itself.
type Heartbeat struct {
	Term  int64
	Lasts time.Duration // how long the term is alive from now, by the database's clock
	Read  int64         // the term has read all changes of transactions before this one
	Busy  bool          // the node polls changes so often that it needs no notifications
}

// A View is the state that all nodes share, read in one statement and so at a single moment.
type View struct {
	Nodes, Beats []int64   // the registered terms, and the counters of their heartbeats
	Expired      []bool    // which terms have expired by the database's clock
	Busy         []int64   // terms that need no notifications
	Owners       []int64   // of each shard; 0 means none; some may have been removed
	Began        time.Time // when the server was started
}

// gone returns the owners whose shards are free to take: 0, and removed nodes that still own
// shards.
func (v *View) gone() []int64 {
	return slices.DeleteFunc(append(slices.Clone(v.Owners), 0), func(owner int64) bool { return slices.Contains(v.Nodes, owner) })
}

// A Database stores the state that all nodes share. Each call takes at most a third of Node.Lasts.
// A call that fails may have taken effect, and nothing is rolled back: the next view shows the
// state.
type Database interface {
	// Prove returns nil if large packets pass in both directions. In a network that passes only
	// small packets, a node would take shards and deliver nothing.
	Prove(ctx context.Context) error

	// View writes a beat and reads a view, in one transaction. It returns ErrNoTerm if the term to
	// renew is not registered.
	View(ctx context.Context, beat Beat, h Heartbeat) (View, error)

	// Take makes the term the owner of those given shards whose owners are among gone, and returns
	// the shards that it got.
	Take(ctx context.Context, term int64, shards []int16, gone []int64) ([]int16, error)

	// Release makes shards of the term free. It waits for settlements of the term.
	Release(ctx context.Context, term int64, shards []int16) error

	// Remove removes a term and frees its shards, if its heartbeat still is *beat or beat is nil.
	// It waits for settlements of the term.
	Remove(ctx context.Context, term int64, beat *int64) error

	// Trim removes changes that all nodes have read.
	Trim(ctx context.Context) error
}

// ErrNoTerm means that the term is not registered; see [Database.View].
var ErrNoTerm = errors.New("the term is not registered")

// A Host keeps the pending deliveries of a node's shards in memory.
type Host interface {
	LoadShards(ctx context.Context, shards []int16) error // begins loading
	PauseShards(shards []int16)
	UnloadShards(shards []int16)
	UnderWay() map[int16]int // running attempts by shard
	IsBusy() bool            // whether other nodes need not notify this node

	BeatEnded(err error)        // after a heartbeat; err is why none was answered for Lasts
	ShareEnded(err error)       // after taking or releasing shards; err is why that failed
	Unanswered(since time.Time) // no heartbeat that was sent after since was answered
}

// A Node owns its share of the shards while it delivers, for one term after another.
type Node struct {
	// These must not be changed after the call to Deliver.
	Database Database
	Host     Host
	Lasts    time.Duration // a node without a heartbeat for this long is dead

	base    int64         // common part of all terms' numbers
	beatNow chan struct{} // shards may be free, or the term may be over

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	group  sync.WaitGroup // Deliver, and the goroutines it begins

	mu      sync.Mutex
	running bool // whether Deliver runs
	failing [works]failing
	newest  *term // may be over; at first a term that is over and has the number 0
	owners  [Count]int64
	busy    []int64   // terms that need no notifications
	viewed  time.Time // when owners and busy were read
	asked   time.Time // when OwnerOf last began to read the owners
}

// Work is a kind of work. If one kind gets no answers from the database, the node delivers nothing.
type Work int

const (
	WorkFeed   Work = iota // reading the change feed
	WorkLoad               // reading deliveries to attempt
	WorkSettle             // settling
	WorkPage               // reading pages of pending deliveries
	works
)

// failing counts the consecutive calls of one kind of work that got no answer.
type failing struct {
	since time.Time // when the first call began
	calls int
}

// New returns a node. Nothing runs before Deliver.
func New(database Database, host Host) *Node {
	n := &Node{Database: database, Host: host, Lasts: NodeLasts, beatNow: make(chan struct{}, 1), base: 1 + rand.Int64N(1<<51-1), newest: &term{over: true}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Base returns the part of the number that all terms of the node share, see [BaseOf].
func (n *Node) Base() int64 { return n.base }

// Context returns a context that ends when Stop is called.
func (n *Node) Context() context.Context { return n.ctx }

// Stop ends the node's running work.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cancel()
}

// Wait waits after Stop until the node's work has ended.
func (n *Node) Wait() { n.group.Wait() }

// Close releases all shards after the running settlements have ended.
func (n *Node) Close() {
	n.Stop()
	n.Wait()
	if n.newest.id != 0 {
		n.newest.deregister()
	}
}

// Go runs a function in the background. It must return when its context is done; Close waits for
// it.
func (n *Node) Go(run func(ctx context.Context)) { n.group.Go(func() { run(n.ctx) }) }

// Enter begins a call; Close waits until leave is called. After Stop it returns false.
func (n *Node) Enter() (leave func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return nil, false
	}
	n.group.Add(1)
	return n.group.Done, true
}

// Current returns the number of the current term, or 0 if there is no term or it may have expired.
// Without a current term no attempt may begin.
func (n *Node) Current() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.newest.current() {
		return n.newest.id
	}
	return 0
}

// Newest returns the number of the newest term, which may be over, or 0 before the first term.
func (n *Node) Newest() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest.id
}

// OwnerOf returns the owner that the shard had when the owners were last read. It returns 0 if the
// shard had no owner, or if the owners have not been read yet. busy means that the owner needs no
// notification. OwnerOf does not wait. If the node does not deliver, OwnerOf reads the owners in
// the background, at most every Lasts/3 (2 s).
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

// view reads a view and keeps its owners.
func (n *Node) view(ctx context.Context, beat Beat, h Heartbeat) (v View, err error) {
	began := time.Now()
	v, err = n.Database.View(ctx, beat, h)
	if err == nil && len(v.Owners) != Count {
		err = fmt.Errorf("postgres: %d shards have owners, want %d", len(v.Owners), Count)
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

// Gone records that a settlement found no row of the term.
func (n *Node) Gone(term int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if term == n.newest.id {
		n.newest.confirmed = time.Time{}
		n.Beat()
	}
}

// Worked records whether the database answered work that began at began.
func (n *Node) Worked(kind Work, began time.Time, answered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began.Before(n.newest.made) {
		return // work of an earlier term
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

// stuck reports whether some kind of work got no answer for Lasts*5/3 and at least twice. Then
// another node must take the shards even if heartbeats arrive. The caller must hold the lock.
func (n *Node) stuck() bool {
	return slices.ContainsFunc(n.failing[:], func(f failing) bool { return f.calls > 1 && time.Since(f.since) >= n.Lasts*5/3 })
}

// Shortly returns ctx, with a timeout of Lasts/3 if the last call of that kind of work got no
// answer. With the short timeout, the next call soon shows whether the database answers.
func (n *Node) Shortly(ctx context.Context, kind Work) (context.Context, context.CancelFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing[kind].calls == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, n.Lasts/3)
}

// Read records that a term has read all changes of transactions whose numbers are lower than
// before. It ignores all terms except the newest, since a restarted server may count transactions
// from the start.
func (n *Node) Read(term, before int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if term == n.newest.id {
		n.newest.read.Store(before)
	}
}

// Beat makes the node send a heartbeat and compute its share soon: there may be shards to take or
// to release.
func (n *Node) Beat() { pause.Wake(n.beatNow) }

// Deliver owns shards, term after term, until ctx is done, and then releases them.
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
