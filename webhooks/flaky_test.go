package webhooks_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

var (
	errOutage  = errors.New("no space left on device")
	errRefused = errors.New("invalid byte sequence")
)

// flaky is a store that fails in the ways that a test asks for.
type flaky struct {
	store.Store

	mu        sync.Mutex
	loadErr   error                            // error that Load returns
	settleErr error                            // error that Settle returns
	doubt     error                            // error that methods return although they have made deliveries due
	refuse    func(*driver.AttemptResult) bool // Settle fails if its batch contains such a result
	spoil     func(*driver.LoadedDelivery)     // applied to each delivery that is loaded
	ahead     time.Duration                    // how far its clock is ahead
	refused   int
	halted    error // why the store has stopped writing

	beforeSettle func([]driver.AttemptResult, []driver.HealthChange) // called at the start of Settle, if not nil; set before Run

	settleHangs  bool // Settle fails only when its context ends
	settleDoubts bool // Settle fails although it has stored the results

	loads   []time.Time // time of each call
	settles []time.Time
	bodies  [][]byte // bodies that Load returned
}

func newFlaky() *flaky { return &flaky{Store: memory.New()} }

// fail makes Load and Settle return these errors from now on.
func (f *flaky) fail(load, settle error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loadErr, f.settleErr = load, settle
}

// halts makes the store stop writing.
func (f *flaky) halts(why error) {
	f.fail(why, why)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.halted = why
}

func (f *flaky) Capabilities() capability.Set {
	return capability.Set{Halted: func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.halted
	}}
}

// refuses makes calls to Settle fail from now on if they contain one of these results.
func (f *flaky) refuses(these func(*driver.AttemptResult) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = these
}

// refusals returns the number of calls that failed because of refuses.
func (f *flaky) refusals() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// called returns when Load and Settle were called.
func (f *flaky) called() (loads, settles []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.loads...), append([]time.Time(nil), f.settles...)
}

// doubts makes methods return err after they have made deliveries due.
func (f *flaky) doubts(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubt = err
}

func doubtful[T any](f *flaky, result T, err error) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubt != nil {
		return *new(T), f.doubt
	}
	return result, err
}

func (f *flaky) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (int, error) {
	deliveries, err := f.Store.Enqueue(ctx, event)
	return doubtful(f, deliveries, err)
}

func (f *flaky) UpdateAlert(ctx context.Context, account string, series string, change func(*driver.AlertStep) error) (int, error) {
	deliveries, err := f.Store.UpdateAlert(ctx, account, series, change)
	return doubtful(f, deliveries, err)
}

func (f *flaky) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []driver.DedupKey) (int, error) {
	deliveries, err := f.Store.EnqueueOnce(ctx, event, dedupKeys)
	return doubtful(f, deliveries, err)
}

func (f *flaky) UpdateWebhook(ctx context.Context, account, id string, change func(*webhooks.Webhook, *audit.Entry) error) (webhooks.Webhook, error) {
	webhook, err := f.Store.UpdateWebhook(ctx, account, id, change)
	return doubtful(f, webhook, err)
}

func (f *flaky) Redeliver(ctx context.Context, account, webhookID, eventID string, entry audit.Entry) error {
	_, err := doubtful(f, 0, f.Store.Redeliver(ctx, account, webhookID, eventID, entry))
	return err
}

func (f *flaky) AdvanceRecovery(ctx context.Context, limit int) (bool, error) {
	advanced, err := f.Store.AdvanceRecovery(ctx, limit)
	return doubtful(f, advanced, err)
}

func (f *flaky) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads = append(f.loads, time.Now())
	if f.loadErr != nil {
		return nil, f.loadErr
	}
	found, err := f.Store.Load(ctx, refs)
	for i := range found {
		if found[i].State == driver.Ready {
			f.bodies = append(f.bodies, found[i].Event.Body)
			if f.spoil != nil {
				f.spoil(&found[i])
			}
		}
	}
	return found, err
}

func (f *flaky) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (driver.Settled, error) {
	if f.beforeSettle != nil {
		f.beforeSettle(results, health)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settles = append(f.settles, time.Now())
	if err := f.settleErr; err != nil {
		if f.settleHangs {
			f.mu.Unlock()
			<-ctx.Done()
			f.mu.Lock()
		}
		if f.settleDoubts {
			_, _ = f.Store.Settle(ctx, results, health)
		}
		return driver.Settled{}, err
	}
	for i := range results {
		if f.refuse != nil && f.refuse(&results[i]) {
			f.refused++
			return driver.Settled{}, errRefused
		}
	}
	return f.Store.Settle(ctx, results, health)
}
