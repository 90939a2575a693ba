package storetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// A Worker claims and settles the deliveries reported by a store. It is a minimal
// [driver.Scheduler] for tests of stores, without limits, round robin or leases. A claimed delivery
// is in flight until it is settled, postponed or forgotten. The methods of a Worker are safe for
// concurrent use.
type Worker struct {
	store  store.Store
	source driver.Deliveries // the same store

	mu       sync.Mutex
	run      *workerRun    // the running Deliver; nil before the first claim
	changed  chan struct{} // closed by the next report
	known    map[string]*driver.Webhook
	waiting  waitingList
	underWay map[driver.DeliveryRef]*underWay
	paused   map[driver.Group]bool
}

// A Task is a claimed delivery.
type Task struct {
	Ref     driver.DeliveryRef
	Event   driver.EncodedEvent
	Webhook *driver.Webhook // shared by tasks; must not be modified
	Attempt int             // number of the attempt to make
	Before  int             // attempts made before the delivery was last redelivered
	Age     time.Duration   // age of the event
	Err     error           // see [driver.LoadedDelivery.Err]
}

// Postpone is a [Settlement.Effect] for an attempt that was not made.
const Postpone = driver.Effect(math.MaxUint8)

// A Settlement ends a claim.
type Settlement struct {
	Task       Task
	Effect     driver.Effect    // Retry, Deliver, GiveUp or Postpone
	Attempt    driver.Attempt   // unused with Postpone
	RetryAfter time.Duration    // used with Retry and Postpone
	Deactivate driver.OffReason // reason for disabling the webhook; empty keeps it active; unused with Postpone
}

// An underWay holds the worker's state of a claimed delivery.
type underWay struct {
	last    driver.PendingDelivery // the last report
	attempt int                    // number of the attempt; 0 while the delivery is being loaded
	again   bool                   // reported again since the claim, so still pending after its result
}

// A workerRun is one call to Deliver, and the scheduler passed to it.
type workerRun struct {
	worker   *Worker
	cancel   context.CancelFunc
	loaded   chan struct{} // closed when all stored deliveries are reported, or Trouble reports an error
	isLoaded bool
	returned chan struct{} // closed after err is set
	err      error
}

var _ driver.Scheduler = (*workerRun)(nil)

// NewWorker returns a worker for the store. The first claim starts Deliver.
func NewWorker(s store.Store) *Worker {
	return &Worker{
		store: s, source: s.(driver.Deliveries), changed: make(chan struct{}), known: map[string]*driver.Webhook{},
		underWay: map[driver.DeliveryRef]*underWay{}, paused: map[driver.Group]bool{},
	}
}

var workers sync.Map // the *Worker of each open store for which WorkerOf was called

// WorkerOf returns the worker of the store. It always returns the same worker for the same store.
// The worker ends when the store is closed.
func WorkerOf(s store.Store) *Worker {
	if w, ok := workers.Load(s); ok {
		return w.(*Worker)
	}
	w, _ := workers.LoadOrStore(s, NewWorker(s))
	return w.(*Worker)
}

// Close cancels Deliver and waits until it has returned. A later claim starts Deliver again.
func (w *Worker) Close() {
	w.mu.Lock()
	run := w.run
	w.mu.Unlock()
	if run != nil {
		run.cancel()
		<-run.returned
		w.drop(run)
	}
	workers.CompareAndDelete(w.store, w)
}

// begin starts Deliver unless it is running. If Deliver has failed, begin returns its error once,
// and the next call starts Deliver again.
func (w *Worker) begin(ctx context.Context) (*workerRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		delivering, cancel := context.WithCancel(context.Background())
		run := &workerRun{worker: w, cancel: cancel, loaded: make(chan struct{}), returned: make(chan struct{})}
		w.run = run
		go func() {
			run.err = w.source.Deliver(delivering, run)
			cancel()
			if errors.Is(run.err, store.ErrClosed) {
				workers.CompareAndDelete(w.store, w)
			}
			close(run.returned)
		}()
	}
	return w.run, nil
}

// drop discards the reports of a Deliver call that has ended, and returns its error.
func (w *Worker) drop(run *workerRun) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == run {
		w.run = nil
		w.waiting = waitingList{}
		clear(w.underWay)
		clear(w.paused)
	}
	return run.err
}

// Claim returns at most n deliveries that are due, of the webhooks with the given IDs or, if none
// are given, of all webhooks. It first waits until the store has reported all stored deliveries.
// The result includes deliveries that completed calls have made pending. Deliveries with First come
// first, deliveries with Recovered come last, and each of the three groups is ordered by due time.
func (w *Worker) Claim(ctx context.Context, n int, webhookIDs ...string) ([]Task, error) {
	run, err := w.begin(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-run.loaded:
	case <-run.returned:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	tasks, err := w.claim(ctx, run, n, webhookIDs)
	if err != nil || len(tasks) == n {
		return tasks, err
	}
	// A shared store may report a step late, but it must report it before Unreported returns.
	if _, err := w.source.Unreported(ctx, "unknown"); err != nil && len(tasks) == 0 {
		return nil, err
	}
	more, err := w.claim(ctx, run, n-len(tasks), webhookIDs)
	if tasks = append(tasks, more...); len(tasks) > 0 {
		return tasks, nil
	}
	return nil, err
}

// Await works like Claim, but waits until a delivery is due, and claims only deliveries that have
// been reported.
func (w *Worker) Await(ctx context.Context, n int, webhookIDs ...string) ([]Task, error) {
	for {
		run, err := w.begin(ctx)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if tasks, err := w.claim(ctx, run, n, webhookIDs); err != nil || len(tasks) > 0 {
			return tasks, err
		}
		w.mu.Lock()
		timer := time.NewTimer(max(time.Millisecond, min(w.waiting.next(time.Now()), time.Second)))
		w.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
		case <-run.returned:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// claim takes due deliveries that have been reported, loads them, and returns their tasks.
func (w *Worker) claim(ctx context.Context, run *workerRun, n int, webhookIDs []string) (tasks []Task, err error) {
	for len(tasks) < n {
		select {
		case <-run.returned:
			if err := w.drop(run); len(tasks) == 0 {
				return nil, err
			}
			return tasks, nil
		default:
		}
		refs := w.take(n-len(tasks), webhookIDs)
		if len(refs) == 0 {
			break
		}
		found, err := w.source.Load(ctx, refs)
		if err != nil {
			for _, ref := range refs {
				w.end(ref, 0, 0, true)
			}
			if len(tasks) == 0 {
				return nil, err
			}
			return tasks, nil
		}
		more, unread := w.tasks(refs, found)
		tasks = append(tasks, more...)
		if unread == len(refs) {
			break
		}
	}
	return tasks, nil
}

// take moves at most n due deliveries from waiting to in flight.
func (w *Worker) take(n int, webhookIDs []string) (refs []driver.DeliveryRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var passed []*waiting
	for len(refs) < n {
		p := w.waiting.pop(time.Now())
		if p == nil {
			break
		}
		id := p.Webhook.ID
		if w.paused[p.Group] || len(webhookIDs) > 0 && !slices.Contains(webhookIDs, id) {
			passed = append(passed, p)
			continue
		}
		ref := driver.DeliveryRef{WebhookID: id, Number: p.Number}
		w.underWay[ref] = &underWay{last: p.PendingDelivery}
		refs = append(refs, ref)
	}
	for _, p := range passed {
		w.waiting.add(p.PendingDelivery)
	}
	return refs
}

const dueTolerance = 2 * time.Millisecond // between reported and loaded due times

// tasks returns the tasks of the Ready deliveries, and the number of deliveries to load again.
func (w *Worker) tasks(refs []driver.DeliveryRef, found []driver.LoadedDelivery) (tasks []Task, unread int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for i, ref := range refs {
		u, l := w.underWay[ref], &found[i]
		if u == nil {
			continue // forgotten in the meantime
		}
		if l.Webhook != nil && l.Err == nil {
			w.learn(l.Webhook)
		}
		known := w.known[ref.WebhookID]
		switch {
		case l.State == driver.Unread:
			unread++
			w.put(ref, u, u.last.Due)
		case l.State == driver.Passive && (known == nil || known.Version <= l.Webhook.Version):
			if u.again {
				w.put(ref, u, now)
				break
			}
			delete(w.underWay, ref)
			w.waiting.park(u.last)
		case l.State == driver.Passive: // the webhook has been enabled since Load
			w.put(ref, u, now)
		case l.State == driver.Ready && l.Due.After(now.Add(dueTolerance)) && l.Err == nil:
			u.last.Attempts = l.Attempts
			w.put(ref, u, l.Due)
		case l.State == driver.Ready:
			u.attempt = l.Attempts + 1
			tasks = append(tasks, Task{
				Ref: ref, Event: l.Event, Webhook: l.Webhook, Attempt: u.attempt, Before: l.Before, Age: l.Age, Err: l.Err,
			})
		case u.again:
			w.put(ref, u, now)
		default:
			delete(w.underWay, ref)
		}
	}
	return tasks, unread
}

// put moves a delivery from in flight to waiting.
func (w *Worker) put(ref driver.DeliveryRef, u *underWay, due time.Time) {
	delete(w.underWay, ref)
	if u.last.Due = due; u.again {
		u.last.Due = time.Now()
	} else if u.attempt > 0 {
		u.last.First = false
	}
	w.waiting.add(u.last)
}

// end ends a claim. If pending is set, the delivery is due again after the given time. If the
// delivery was reported again since the claim, it is due now.
func (w *Worker) end(ref driver.DeliveryRef, attempt int, after time.Duration, pending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.underWay[ref]
	switch {
	case u == nil || u.attempt != attempt:
	case pending || u.again:
		w.put(ref, u, time.Now().Add(after))
		w.wake()
	default:
		delete(w.underWay, ref)
	}
}

// Postpone ends claims without results; the deliveries are then due again.
func (w *Worker) Postpone(tasks ...Task) {
	for _, task := range tasks {
		w.end(task.Ref, task.Attempt, 0, true)
	}
}

// maxDecisions is the maximum number of times that a call recomputes the health of a webhook that
// changes concurrently.
const maxDecisions = 32

// Settle ends claims, and stores their results and the resulting health of the webhooks. It returns
// the indexes of stale settlements in ascending order. If the attempt of a settlement is not under
// way, Settle stores the result but does not change the health.
func (w *Worker) Settle(ctx context.Context, settlements []Settlement) (stale []int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var results []driver.AttemptResult
	var indexes []int // settlements with results
	for i := range settlements {
		s := &settlements[i]
		if s.Effect == Postpone {
			continue
		}
		indexes = append(indexes, i)
		results = append(results, driver.AttemptResult{
			DeliveryRef: s.Task.Ref, Effect: s.Effect, Attempt: s.Attempt, RetryAfter: s.RetryAfter,
		})
	}
	of := w.current(settlements)
	changes := w.decide(of)
	if len(results)+len(changes) > 0 {
		settled, err := w.source.Settle(ctx, results, changes)
		if err != nil {
			return nil, err
		}
		for _, i := range settled.Stale {
			stale = append(stale, indexes[i])
		}
		for round := 1; round < maxDecisions && len(changes) > 0; round++ {
			of = w.conflicting(ctx, of, changes, settled.Conflicts)
			if changes = w.decide(of); len(changes) > 0 {
				if settled, err = w.source.Settle(ctx, nil, changes); err != nil {
					break
				}
			}
		}
	}
	for i := range settlements {
		s := &settlements[i]
		_, isStale := slices.BinarySearch(stale, i)
		switch {
		case isStale: // the next Load returns its state
			w.end(s.Task.Ref, s.Task.Attempt, 0, true)
		default:
			w.end(s.Task.Ref, s.Task.Attempt, s.RetryAfter, s.Effect == Postpone || s.Effect == driver.Retry)
		}
	}
	return stale, nil
}

// current returns, by webhook, the settlements that count for the health of the webhook.
func (w *Worker) current(settlements []Settlement) map[string][]*Settlement {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := map[string][]*Settlement{}
	seen := map[driver.DeliveryRef]bool{}
	for i := range settlements {
		s := &settlements[i]
		ref := s.Task.Ref
		u, known := w.underWay[ref], w.known[ref.WebhookID]
		if s.Effect != Postpone && u != nil && u.attempt == s.Task.Attempt && !seen[ref] && known != nil && known.URL == s.Task.Webhook.URL {
			of[ref.WebhookID] = append(of[ref.WebhookID], s)
		}
		seen[ref] = true
	}
	return of
}

// decide returns the health changes that result from the settlements of known webhooks.
func (w *Worker) decide(of map[string][]*Settlement) (changes []driver.HealthChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, list := range of {
		known := w.known[id]
		if known == nil {
			continue
		}
		change := driver.HealthChange{Account: known.Account, WebhookID: id, Version: known.Version, Health: known.WebhookHealth}
		for _, s := range list {
			change.Health = change.Health.After(s.Effect, &s.Attempt, s.Task.Event.ID, s.Deactivate)
		}
		if change.Health != known.WebhookHealth {
			changes = append(changes, change)
		}
	}
	return changes
}

// conflicting reloads the webhooks whose health changes conflicted, and returns their settlements
// for another decision. It omits webhooks that a user has disabled or given another URL.
func (w *Worker) conflicting(ctx context.Context, of map[string][]*Settlement, changes []driver.HealthChange, conflicts []int) map[string][]*Settlement {
	again := map[string][]*Settlement{}
	for i, change := range changes {
		if _, conflict := slices.BinarySearch(conflicts, i); !conflict {
			w.stored(change)
			continue
		}
		list := of[change.WebhookID]
		found, err := w.store.WebhookByID(ctx, change.Account, change.WebhookID)
		if err != nil || found.URL != list[0].Task.Webhook.URL || !found.Active && list[0].Task.Webhook.Active {
			continue
		}
		w.mu.Lock()
		w.learn(&found)
		w.mu.Unlock()
		again[change.WebhookID] = list
	}
	return again
}

// stored applies a stored health change to the worker's copy of the webhook.
func (w *Worker) stored(change driver.HealthChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.known[change.WebhookID]; known != nil && known.Version == change.Version {
		changed := *known
		changed.WebhookHealth, changed.Version = change.Health, change.Version+1
		w.learn(&changed)
	}
}

// Backlog counts the pending deliveries of one webhook or, if webhookID is empty, of all webhooks.
// The count consists of the deliveries that the worker knows and that are still pending in the
// store, and of the deliveries that the store has not reported.
func (w *Worker) Backlog(ctx context.Context, webhookID string) (driver.Backlog, error) {
	b, err := w.source.Unreported(ctx, webhookID)
	if err != nil {
		return driver.Backlog{}, err
	}
	now := time.Now()
	for refs := range slices.Chunk(w.refs(webhookID), 500) {
		for len(refs) > 0 {
			found, err := w.source.Load(ctx, refs)
			if err != nil {
				return driver.Backlog{}, err
			}
			var unread []driver.DeliveryRef
			for i, l := range found {
				w.mu.Lock()
				u := w.underWay[refs[i]]
				w.mu.Unlock()
				switch {
				case l.State == driver.Unread:
					unread = append(unread, refs[i])
					continue
				case l.State == driver.Gone:
					continue
				case l.State == driver.Ready && u == nil && !l.Due.After(now) && (b.OldestDue.IsZero() || l.Due.Before(b.OldestDue)):
					b.OldestDue = l.Due.UTC().Truncate(time.Millisecond)
				}
				b.Pending++
			}
			refs = unread
		}
	}
	return b, nil
}

// refs returns the known deliveries of one webhook or, if webhookID is empty, of all webhooks.
func (w *Worker) refs(webhookID string) (refs []driver.DeliveryRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ref := range w.waiting.all {
		if webhookID == "" || webhookID == ref.WebhookID {
			refs = append(refs, ref)
		}
	}
	for ref := range w.underWay {
		if webhookID == "" || webhookID == ref.WebhookID {
			refs = append(refs, ref)
		}
	}
	return refs
}

// learn records a webhook, unless a later version is known.
func (w *Worker) learn(webhook *driver.Webhook) {
	if known := w.known[webhook.ID]; known != nil && known.Version > webhook.Version {
		return
	}
	w.known[webhook.ID] = webhook
	if webhook.Claimable() {
		w.waiting.unpark(webhook.ID)
	}
}

func (w *Worker) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (r *workerRun) report(apply func(w *Worker)) {
	r.worker.mu.Lock()
	defer r.worker.mu.Unlock()
	apply(r.worker)
	r.worker.wake()
}

// Add implements [driver.Scheduler], as do the methods below.
func (r *workerRun) Add(list []driver.PendingDelivery) {
	r.report(func(w *Worker) {
		for _, p := range list {
			ref := driver.DeliveryRef{WebhookID: p.Webhook.ID, Number: p.Number}
			w.learn(p.Webhook)
			if u := w.underWay[ref]; u != nil {
				u.again, u.last = true, p
			} else {
				w.waiting.add(p)
			}
		}
	})
}

func (r *workerRun) Nudge(ref driver.DeliveryRef) {
	r.report(func(w *Worker) {
		if u := w.underWay[ref]; u != nil {
			u.again, u.last.First = true, true
		} else {
			w.waiting.nudge(ref)
		}
	})
}

func (r *workerRun) Webhook(webhook *driver.Webhook) {
	r.report(func(w *Worker) { w.learn(webhook) })
}

func (*workerRun) Probe(string) {}

func (r *workerRun) Forget(scope driver.Scope) {
	r.report(func(w *Worker) {
		in := func(p *driver.PendingDelivery) bool {
			switch {
			case scope.WebhookID != "":
				return p.Webhook.ID == scope.WebhookID
			case scope.Account != "":
				return p.Webhook.Account == scope.Account
			}
			return p.Group == scope.Group
		}
		w.waiting.forget(in)
		for ref, u := range w.underWay {
			if in(&u.last) {
				delete(w.underWay, ref)
			}
		}
		for id, known := range w.known {
			if id == scope.WebhookID || scope.Account != "" && known.Account == scope.Account {
				delete(w.known, id)
			}
		}
		if scope.WebhookID+scope.Account == "" {
			delete(w.paused, scope.Group)
		}
	})
}

func (*workerRun) Ended([]driver.DeliveryRef) {} // Load returns Gone for these deliveries

func (r *workerRun) Pause(groups []driver.Group) {
	r.report(func(w *Worker) {
		for _, g := range groups {
			w.paused[g] = true
		}
	})
}

func (r *workerRun) UnderWay() map[driver.Group]int {
	r.worker.mu.Lock()
	defer r.worker.mu.Unlock()
	n := map[driver.Group]int{}
	for _, u := range r.worker.underWay {
		n[u.last.Group]++
	}
	return n
}

func (r *workerRun) Trouble(error) {
	r.report(func(*Worker) {
		if !r.isLoaded {
			r.isLoaded = true
			close(r.loaded)
		}
	})
}
