package webhooks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrRunning is returned by [WebhookService.Run] if it is running already.
var ErrRunning = errors.New("webhooks: Run is running already")

const (
	maxClaim     = 256 // tasks a store call, so that its steps stay short
	maxSettle    = 512
	storeTimeout = 10 * time.Second      // for one call
	minBackoff   = 50 * time.Millisecond // after a failure of the store
	maxBackoff   = 5 * time.Second
)

// A dispatcher claims deliveries that are due, makes attempts and settles them.
type dispatcher struct {
	store  Store
	client *client
	config Config
	wake   chan struct{} // something may have become due

	// claiming is full from before a claim until its tasks are in flights: who
	// deletes a webhook and then fills it finds all that was claimed of it.
	claiming chan struct{}

	mu      sync.Mutex
	flights map[string]map[*flight]struct{} // by webhook id
	running bool

	// failing is set while results cannot be settled: no attempt is begun whose
	// result might be lost.
	failing atomic.Bool
}

// A flight is an attempt under way.
type flight struct {
	task   Task
	ctx    context.Context
	cancel context.CancelFunc
	landed chan struct{} // closed when nothing more will be sent
}

func newDispatcher(store Store, client *client, config Config) *dispatcher {
	return &dispatcher{
		store:    store,
		client:   client,
		config:   config,
		wake:     make(chan struct{}, 1),
		claiming: make(chan struct{}, 1),
		flights:  make(map[string]map[*flight]struct{}),
	}
}

// hurry makes a running dispatcher look for due deliveries now.
func (d *dispatcher) hurry() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx is done, then drains.
func (d *dispatcher) run(ctx context.Context) error {
	if !d.start() {
		return ErrRunning
	}
	defer d.stop()

	// Attempts outlive ctx by the drain timeout.
	attempts, cutShort := context.WithCancel(context.WithoutCancel(ctx))
	defer cutShort()
	results := make(chan Settlement, d.config.Concurrency)
	settled := make(chan int)
	go d.settle(attempts, results, settled)
	defer close(results)

	inFlight, backoff := 0, time.Duration(0)
	var again <-chan time.Time // when to claim if nothing happens before
	resting := false           // the store failed: not before again, whatever happens
	for ctx.Err() == nil {
		if free := d.config.Concurrency - inFlight; free > 0 && !resting && !d.failing.Load() {
			flights, wait, err := d.claim(ctx, attempts, min(free, maxClaim))
			if ctx.Err() != nil {
				err = nil // it was to end, and did
			}
			backoff = d.backoff("claim", backoff, err)
			resting = backoff > 0
			for _, f := range flights {
				go d.fly(f, results)
			}
			inFlight += len(flights)
			if len(flights) == 0 {
				wait = max(wait, backoff, time.Millisecond)
			}
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case n := <-settled:
			inFlight -= n
		case <-d.wake:
		case <-again:
			resting = false
		}
	}

	late := time.AfterFunc(max(d.config.DrainTimeout, 0), cutShort)
	defer late.Stop()
	for inFlight > 0 {
		inFlight -= <-settled
	}
	return nil
}

func (d *dispatcher) start() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running {
		return false
	}
	d.running = true
	d.failing.Store(false)
	return true
}

func (d *dispatcher) stop() {
	d.client.transport.CloseIdleConnections()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = false
}

// claim returns up to limit new flights, registered but not begun.
func (d *dispatcher) claim(ctx, attempts context.Context, limit int) ([]*flight, time.Duration, error) {
	d.claiming <- struct{}{}
	defer func() { <-d.claiming }()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	tasks, wait, err := d.store.ClaimDeliveries(ctx, Claim{limit, d.config.PerWebhook, d.config.Lease})
	if err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	flights := make([]*flight, len(tasks))
	for i, task := range tasks {
		f := &flight{task: task, landed: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancel(attempts)
		flights[i] = f
		of := d.flights[task.Webhook.ID]
		if of == nil {
			of = make(map[*flight]struct{})
			d.flights[task.Webhook.ID] = of
		}
		of[f] = struct{}{}
	}
	return flights, wait, nil
}

// fly makes one attempt and hands on what came of it.
func (d *dispatcher) fly(f *flight, results chan<- Settlement) {
	var res result
	if f.task.Err != nil {
		res.attempt = Attempt{Number: f.task.Attempt, StartedAt: d.config.Now().UTC().Truncate(time.Millisecond)}
		res.attempt.Error = "the stored record cannot be read"
	} else {
		res = d.client.attempt(f.ctx, &f.task)
	}
	f.cancel()
	d.land(f)
	results <- d.judge(f.task, res)
}

func (d *dispatcher) land(f *flight) {
	close(f.landed)
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.flights[f.task.Webhook.ID]
	delete(of, f)
	if len(of) == 0 {
		delete(d.flights, f.task.Webhook.ID)
	}
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
	flights := make([]*flight, 0, len(d.flights[webhook]))
	for f := range d.flights[webhook] {
		f.cancel()
		flights = append(flights, f)
	}
	d.mu.Unlock()
	for _, f := range flights {
		select {
		case <-f.landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// judge decides what becomes of a delivery after an attempt.
func (d *dispatcher) judge(task Task, res result) Settlement {
	settlement := Settlement{Task: task, Attempt: res.attempt, Deactivate: res.gone}
	switch {
	case res.attempt.Error == "":
		settlement.Outcome = Deliver
	case res.canceled:
		settlement.Outcome = Release
	case res.gone:
		settlement.Outcome = GiveUp
	default:
		settlement.Outcome = GiveUp
		if wait, ok := nextRetry(d.config.Retries, task.Attempt, res.retryAfter); ok {
			settlement.Outcome, settlement.RetryAfter = Retry, wait
		}
	}
	return settlement
}

// settle records results in batches of whatever is there, and says how many
// attempts have ended so.
func (d *dispatcher) settle(attempts context.Context, results <-chan Settlement, settled chan<- int) {
	for first := range results {
		batch := append(make([]Settlement, 0, 16), first)
		for more := true; more && len(batch) < maxSettle; {
			select {
			case next, ok := <-results:
				if more = ok; ok {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		d.record(attempts, batch)
		settled <- len(batch)
	}
}

// record settles a batch. While the store fails it tries again, and nothing new is
// claimed: leases that run out meanwhile stay current. Once attempts are cut short
// it gives up, and the deliveries will be attempted again.
func (d *dispatcher) record(attempts context.Context, batch []Settlement) {
	for backoff := time.Duration(0); ; {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		stale, err := d.store.SettleDeliveries(ctx, batch)
		cancel()
		d.failing.Store(err != nil)
		if err == nil {
			d.report(batch, stale)
			return
		}
		backoff = d.backoff("settle", backoff, err)
		select {
		case <-time.After(backoff):
		case <-attempts.Done():
			return
		}
	}
}
