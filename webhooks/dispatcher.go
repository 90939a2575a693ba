package webhooks

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxClaim     = 400                   // tasks a store call, so that its steps stay short
	minPause     = time.Millisecond      // between claims, if nothing was due
	storeTimeout = 10 * time.Second      // for one call
	minBackoff   = 50 * time.Millisecond // after a failure of the store
	maxBackoff   = 5 * time.Second
)

// A dispatcher claims deliveries that are due, makes attempts and settles them.
type dispatcher struct {
	store  Store
	client *client
	config Config
	halt   *halt
	wake   chan struct{} // something may have become due

	// claiming is full from before a claim until its tasks are in flight: who
	// deletes a webhook and then looks at its flights finds all that was claimed
	// of it.
	claiming chan struct{}

	mu    sync.Mutex
	pacer *pacer // changed by the run loop only

	hopes map[string]bool // webhooks that the pacer is to be told of, see hope

	vacated []*flight // the run loop's, empty: to be used again

	// failing is set while results cannot be settled: no attempt is begun whose
	// result might be lost. But for one now and then, a trial, to find out
	// whether it is the store that fails or what it is given.
	failing atomic.Bool

	respite respite

	over    context.Context // ends when Run has to return, whatever hooks do
	telling chan struct{}   // full while a hook is called

	delivered, failed, dead atomic.Uint64 // see stats
}

func newDispatcher(store Store, client *client, config Config) *dispatcher {
	return &dispatcher{
		store:    store,
		client:   client,
		config:   config,
		halt:     &halt{store: store, logger: config.Logger},
		wake:     make(chan struct{}, 1),
		claiming: make(chan struct{}, 1),
		telling:  make(chan struct{}, 1),
		pacer:    newPacer(config),
		hopes:    make(map[string]bool),
	}
}

// hurry makes a running dispatcher look for due deliveries now. It is called also when
// the store failed to make some due: it may have done so nevertheless.
func (d *dispatcher) hurry() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx is done, then drains.
func (d *dispatcher) run(ctx context.Context) {
	d.failing.Store(false)

	// Attempts outlive ctx by the drain timeout.
	attempts, cutShort := context.WithCancel(context.WithoutCancel(ctx))
	defer cutShort()
	// None of them ever has to wait: what they are sent is bounded by pacer.room.
	landed := make(chan *flight, d.config.Concurrency)
	results := make(chan *flight, d.config.Concurrency+maxSettle)
	settled, refused := make(chan []*flight), make(chan []*flight)
	go d.settle(attempts, results, settled, refused)
	defer close(results)
	crew := crew{fly: func(f *flight) { d.fly(f, landed) }, work: make(chan *flight)}
	defer close(crew.work)

	var r round
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		flights, next := d.claim(ctx, &r)
		for _, f := range flights {
			crew.send(f)
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
		case f := <-landed:
			d.vacate(f, landed, results)
		case flights := <-settled:
			d.change(flights, d.pacer.settled)
		case flights := <-refused:
			d.change(flights, d.pacer.suspend)
		case <-d.wake:
		case <-timer.C:
		}
	}

	late := time.AfterFunc(max(d.config.DrainTimeout, 0), cutShort)
	defer late.Stop()
	tooLate := attempts.Done()
	for d.pacer.inFlight > 0 || d.pacer.unsettled > 0 {
		select {
		case <-tooLate:
			tooLate = nil
			d.pacer.cancelAll()
		case f := <-landed:
			d.vacate(f, landed, results)
		case flights := <-settled:
			d.change(flights, d.pacer.settled)
		case flights := <-refused:
			d.change(flights, d.pacer.suspend)
		}
	}
}

// vacate ends a flight that has landed, with the others that have, and hands them on
// to be settled: others may use their slots meanwhile.
func (d *dispatcher) vacate(f *flight, landed <-chan *flight, results chan<- *flight) {
	runtime.Gosched() // those that are about to land come along, and share a claim
	flights := append(d.vacated[:0], f)
	for more := true; more; {
		select {
		case f := <-landed:
			flights = append(flights, f)
		default:
			more = false
		}
	}
	d.change(flights, func(flights []*flight) { d.pacer.end(flights, time.Now()) })
	for _, f := range flights {
		results <- f
	}
	clear(flights)
	d.vacated = flights
}

// change tells the pacer something of flights.
func (d *dispatcher) change(flights []*flight, tell func([]*flight)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tell(flights)
}

// claim returns new flights, registered but not begun, and when the next claim is
// due, unless something happens before.
func (d *dispatcher) claim(ctx context.Context, r *round) (flights []*flight, next time.Time) {
	d.claiming <- struct{}{}
	defer func() { <-d.claiming }()
	now, failing := time.Now(), d.failing.Load()
	d.mu.Lock()
	d.takeHopes(now)
	d.pacer.look(now)
	d.mu.Unlock()

	limit, next := r.limit(now, d.pacer.room(), failing)
	limit, next = d.respite.limit(now, limit, next)
	if limit == 0 {
		return nil, d.pacer.plan(now, next, false)
	}
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var wait time.Duration
	var err error
	if failing {
		flights, wait, err = d.lease(timed, Claim{Limit: limit, PerWebhook: 1, Caps: d.pacer.idle()}, now)
		d.pacer.raised = nil // those caps were others
		r.tried(now, len(flights))
	} else {
		flights, wait, err = d.leaseAll(timed, limit, now)
	}
	d.respite.claimed(len(flights))
	if ctx.Err() != nil {
		err = nil // it was to end, and did
	}
	r.backoff = d.backoff("claim", r.backoff, err)
	now = time.Now()
	if r.rested = now.Add(r.backoff); len(flights) == 0 {
		wait = max(wait, r.backoff, minPause)
	}
	return flights, d.pacer.plan(now, now.Add(wait), err == nil)
}

// leaseAll claims first what webhooks that are not fit may have, for they hold less
// than their share, and then whatever is due.
func (d *dispatcher) leaseAll(ctx context.Context, limit int, now time.Time) (flights []*flight, wait time.Duration, err error) {
	if caps, turns := d.offer(now, d.respite.turns(limit)); turns > 0 {
		flights, _, err = d.lease(ctx, Claim{Limit: turns, Caps: caps}, now)
		d.answer(err)
		if limit -= len(flights); limit == 0 || err != nil {
			return flights, 0, err
		}
	}
	claim := Claim{Limit: limit, PerWebhook: d.pacer.firstCap, Caps: d.pacer.caps, Raised: d.pacer.raised}
	d.pacer.boundUnproven(&claim)
	fit, wait, err := d.lease(ctx, claim, now)
	return append(flights, fit...), wait, err
}

// lease makes flights of what it claims.
func (d *dispatcher) lease(ctx context.Context, claim Claim, now time.Time) (flights []*flight, wait time.Duration, err error) {
	claim.Lease, claim.PerAccount = d.config.Lease, d.config.PerAccount
	claim.Finished = d.pacer.waiting.landed(now, claim.Lease, d.failing.Load())
	if !d.failing.Load() {
		claim.Probes = d.pacer.asks()
	}
	tasks, wait, err := d.store.ClaimDeliveries(ctx, claim)
	if err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pacer.waiting.told()
	if claim.PerWebhook > 0 {
		d.pacer.raised = slices.Grow(d.pacer.raised[:0], 1) // not nil any more
	}
	unproven := 0
	flights = make([]*flight, len(tasks))
	for i, task := range tasks {
		f := d.pacer.flight()
		f.settlement.Task, f.begun, f.inTurn = task, now, claim.PerWebhook == 0
		d.pacer.begin(f)
		flights[i] = f
		if f.unproven {
			unproven++
		}
	}
	if claim.PerUnproven == 1 && claim.MaxUnproven > 0 {
		d.pacer.await(unproven >= claim.MaxUnproven)
	}
	return flights, wait, nil
}

func (d *dispatcher) offer(now time.Time, limit int) (caps map[string]int, turns int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pacer.offer(now, limit)
}

func (d *dispatcher) answer(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pacer.answered(time.Now(), err)
}

// evict cuts short what is under way to a webhook that was deleted, and returns
// when nothing more will be sent to it by this process, or when ctx is done.
func (d *dispatcher) evict(ctx context.Context, webhook string) error {
	select {
	case d.claiming <- struct{}{}:
		<-d.claiming
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	flights := d.pacer.watch(webhook)
	d.mu.Unlock()
	for _, f := range flights {
		f.stop.now()
	}
	for _, f := range flights {
		if err := f.stop.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// paceOf tells how a webhook does.
func (d *dispatcher) paceOf(webhook string) LimiterState {
	d.mu.Lock()
	defer d.mu.Unlock()
	pace := d.pacer.pace(webhook)
	pace.Down = pace.Down && !d.hopes[webhook]
	return pace
}

// stats tells how many attempts are in flight, and since New: how many deliveries
// arrived, how many attempts failed, and how many deliveries were given up.
func (d *dispatcher) stats() (inFlight int, delivered, failed, dead uint64) {
	d.mu.Lock()
	inFlight = d.pacer.inFlight
	d.mu.Unlock()
	return inFlight, d.delivered.Load(), d.failed.Load(), d.dead.Load()
}
