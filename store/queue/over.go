package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// A Store is what [Over] needs of a store.
type Store interface {
	webhooks.Deliveries
	WebhookByID(ctx context.Context, account, id string) (webhooks.Webhook, error)
}

// Options are the options of [Over].
type Options struct {
	// Attach, if the store has one process and needs no goroutine to report, does what
	// Deliver does, but returns once it has reported what is stored. Nothing is reported
	// after detach has returned. It is called until it succeeds; nil: Deliver is called on a
	// goroutine that ends with Close.
	Attach func(ctx context.Context, s webhooks.Scheduler) (detach func(), err error)
}

// Claims answers the claims and settlements of [webhooks.Queue] for a store that implements
// [webhooks.Deliveries]. Its constructor starts nothing: the first claim does, so that a
// process that only publishes holds no queue. It is safe for concurrent use.
type Claims struct {
	store   Store
	options Options
	ctx     context.Context    // of Deliver
	cancel  context.CancelFunc // on Close
	running sync.WaitGroup     // Deliver

	beginning chan struct{} // full while a call has Deliver begin

	// mu is never held in a call of the store.
	mu       sync.Mutex
	queue    Queue
	hooks    map[string]*hook // those with something pending; others until the next sweep
	sweepAt  int              // number of hooks
	paused   map[webhooks.Group]bool
	settling map[chan struct{}]bool // calls of the store's Settle, closed once the queue has their results

	begun     bool          // Deliver, or it is attached
	detach    func()        // if it is
	reported  int           // deliveries, since Deliver began
	loaded    chan struct{} // closed once all that was stored is reported
	allLoaded bool
	loadUntil time.Time // claims wait for it
	trouble   error     // reported by the store, or why Deliver ended
	failed    error     // why Deliver ended, until it begins again
	closed    bool
	loads     uint64 // of claims

	inbox struct { // reports that came while mu was held, in order
		sync.Mutex
		list   []func()
		wakers map[uint64]func()
		waker  uint64 // the last one's number
	}
}

const (
	loadPatience = time.Second           // that claims wait for what is stored to be reported,
	enoughLoaded = 4096                  // unless that many deliveries are
	loadPause    = 50 * time.Millisecond // between claims while it is not
	minRestart   = 50 * time.Millisecond // between two calls of Deliver: the pauses double
	maxRestart   = 5 * time.Second
	steadyAfter  = time.Minute // of Deliver: then they begin again at the shortest
)

// Over returns the claims of a store.
func Over(store Store, options Options) *Claims {
	c := &Claims{
		store: store, options: options, hooks: make(map[string]*hook), sweepAt: minSweep,
		settling: make(map[chan struct{}]bool), loaded: make(chan struct{}), beginning: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends Deliver, and waits for its return. From then on every method returns
// [store.ErrClosed].
func (c *Claims) Close() {
	c.mu.Lock()
	detach := c.detach
	c.closed, c.detach = true, nil
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	if detach != nil {
		detach()
	}
}

// open reports why a call must do nothing.
func (c *Claims) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return store.ErrClosed
	}
	return nil
}

// start has Deliver begin, if it has not, and waits a while until all that is stored is
// reported: the first claims find it.
func (c *Claims) start(ctx context.Context) error {
	for {
		c.lock()
		err, loaded, wait := c.failed, c.loaded, time.Until(c.loadUntil)
		begun, enough := c.begun, c.allLoaded || wait <= 0 || c.reported >= enoughLoaded
		if c.closed {
			err = store.ErrClosed
		}
		c.mu.Unlock()
		if err == nil && !begun {
			if err = c.begin(ctx); err == nil {
				continue
			}
		}
		if err != nil || enough {
			return err
		}
		timer := time.NewTimer(min(wait, loadPause))
		select {
		case <-loaded:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// begin has Deliver begin once.
func (c *Claims) begin(ctx context.Context) error {
	select {
	case c.beginning <- struct{}{}:
		defer func() { <-c.beginning }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var detach func()
	if attach := c.options.Attach; attach != nil {
		c.mu.Lock()
		begun := c.begun
		c.mu.Unlock()
		if begun {
			return nil
		}
		var err error
		if detach, err = attach(ctx, (*feed)(c)); err != nil {
			return err
		}
	}
	c.mu.Lock()
	closed := c.closed
	switch {
	case c.closed, c.begun:
	case detach != nil:
		c.begun, c.detach = true, detach
	default:
		c.begun, c.loadUntil = true, time.Now().Add(loadPatience)
		c.running.Go(c.deliver)
	}
	c.mu.Unlock()
	if closed && detach != nil {
		detach()
	}
	return nil
}

// deliver runs Deliver until Close, again and again if it fails.
func (c *Claims) deliver() {
	for pause := minRestart; ; {
		began := time.Now()
		err := c.store.Deliver(c.ctx, (*feed)(c))
		if c.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the store reports no more deliveries")
		}
		c.lock()
		c.clear(err)
		c.mu.Unlock()
		if errors.Is(err, store.ErrClosed) {
			return
		}
		if time.Since(began) > steadyAfter {
			pause = minRestart
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, maxRestart)
		c.lock()
		c.failed, c.loadUntil = nil, time.Now().Add(loadPatience)
		c.mu.Unlock()
	}
}

// clear empties the queue after an error of Deliver, which reports everything again when it
// is called again. Attempts under way go on.
func (c *Claims) clear(err error) {
	c.failed, c.trouble, c.reported, c.paused = err, err, 0, nil
	if !c.allLoaded {
		close(c.loaded)
	}
	c.loaded, c.allLoaded = make(chan struct{}), false
	c.queue.Clear()
	for id, k := range c.hooks {
		if len(k.taken) == 0 {
			delete(c.hooks, id)
		}
	}
}

// ClaimDeliveries answers [webhooks.Queue.ClaimDeliveries]. After an error of Deliver it
// returns that error until Deliver is called again.
func (c *Claims) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := c.start(ctx); err != nil {
		return nil, 0, err
	}
	claimed, refs, wait := c.take(&claim)
	if len(claimed) == 0 {
		return nil, wait, nil
	}
	found, err := c.store.Load(ctx, refs)
	c.lock()
	defer c.mu.Unlock()
	if err != nil {
		for i := range claimed {
			c.end(claimed[i].Webhook, claimed[i].Seq, claimed[i].Token, c.queue.Release)
		}
		return nil, 0, err
	}
	tasks = c.tasks(claimed, found)
	if len(tasks) < len(claimed) {
		wait = 0
	}
	return tasks, wait, nil
}

// Backlog answers [webhooks.Queue.Backlog]. It waits for settlements that others may see
// already.
func (c *Claims) Backlog(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	if err := c.open(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	if err := c.awaitSettled(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	unreported, err := c.store.Unreported(ctx, webhookID)
	if err != nil {
		return webhooks.Backlog{}, err
	}
	c.lock()
	defer c.mu.Unlock()
	b := c.queue.Backlog(time.Now(), webhookID)
	b.Pending += unreported.Pending
	b.Held = unreported.Held
	if since := unreported.OldestDue; !since.IsZero() && (b.OldestDue.IsZero() || since.Before(b.OldestDue)) {
		b.OldestDue = since
	}
	return b, nil
}

func (c *Claims) awaitSettled(ctx context.Context) error {
	c.mu.Lock()
	calls := make([]chan struct{}, 0, len(c.settling))
	for done := range c.settling {
		calls = append(calls, done)
	}
	c.mu.Unlock()
	for _, done := range calls {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// LongestWait answers [webhooks.Queue.LongestWait]. It also returns the store's trouble with
// reading what is pending.
func (c *Claims) LongestWait(ctx context.Context) (time.Duration, error) {
	if err := c.open(ctx); err != nil {
		return 0, err
	}
	if err := c.store.Ping(ctx); err != nil {
		return 0, err
	}
	c.lock()
	defer c.mu.Unlock()
	return c.queue.LongestWait(time.Now()), c.trouble
}

// Wake implements [webhooks.Waker]: it calls wake after each report of the store, until ctx
// is done. wake must return at once.
func (c *Claims) Wake(ctx context.Context, wake func()) {
	c.inbox.Lock()
	if c.inbox.wakers == nil {
		c.inbox.wakers = make(map[uint64]func())
	}
	c.inbox.waker++
	number := c.inbox.waker
	c.inbox.wakers[number] = wake
	c.inbox.Unlock()
	<-ctx.Done()
	c.inbox.Lock()
	delete(c.inbox.wakers, number)
	c.inbox.Unlock()
}

// lock locks mu and applies the reports that came while it was held.
func (c *Claims) lock() {
	c.mu.Lock()
	c.drain()
}

func (c *Claims) drain() {
	c.inbox.Lock()
	list := c.inbox.list
	c.inbox.list = nil
	c.inbox.Unlock()
	for _, apply := range list {
		apply()
	}
}

// sweep forgets the hooks with nothing pending once there are many.
func (c *Claims) sweep() {
	if len(c.hooks) < c.sweepAt {
		return
	}
	for id, k := range c.hooks {
		if len(k.taken) == 0 && c.queue.Backlog(time.Now(), id).Pending == 0 {
			delete(c.hooks, id)
		}
	}
	c.sweepAt = max(minSweep, 2*len(c.hooks))
}

const minSweep = 1024

// A hook is a webhook with what the store has reported or loaded of it.
type hook struct {
	webhook *webhooks.Webhook // of the highest version
	hinted  bool              // webhook is from Add, which may be of one that was deleted, and imported again since
	group   webhooks.Group
	off     bool    // by the store, or loaded: paused in the queue
	probed  bool    // a taken delivery was nudged: the probe that goes with it is under way
	taken   []taken // claimed, and those whose lease ran out until they are claimed again

	unread   int       // loads in a row that answered Unread,
	unreadIn uint64    // the last of them
	storing  *decision // the last one that was given to the store
}

// A taken is a delivery from its claim until its lease has ended.
type taken struct {
	number uint64
	token  uint64
	again  bool // it was reported meanwhile
	made   int  // attempts, those whose lease ran out included
}

func (k *hook) find(number uint64) *taken {
	i := slices.IndexFunc(k.taken, func(t taken) bool { return t.number == number })
	if i < 0 {
		return nil
	}
	return &k.taken[i]
}

// Reported returns how many deliveries of the webhook are reported and pending.
func (c *Claims) Reported(webhookID string) int {
	c.lock()
	defer c.mu.Unlock()
	return c.queue.Backlog(time.Now(), webhookID).Pending
}
