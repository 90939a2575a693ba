package webhooks_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

var (
	errOutage  = errors.New("no space left on device")
	errRefused = errors.New("invalid byte sequence")
)

// A flaky store does what a test tells it to do instead.
type flaky struct {
	webhooks.Store

	mu        sync.Mutex
	claimErr  error                           // what ClaimDeliveries returns
	settleErr error                           // what SettleDeliveries returns
	doubt     error                           // what those return that make deliveries due, although they have
	refuse    func(*webhooks.Settlement) bool // those with which it fails
	spoil     func(*webhooks.Task)            // applied to each task that is claimed
	ahead     time.Duration                   // of its clock
	refused   int
	halted    error // why it writes nothing any more

	settleHangs  bool // SettleDeliveries fails only when its context ends
	settleDoubts bool // it fails although it has happened

	claims      []time.Time // when each call was
	settles     []time.Time
	settlements []webhooks.Settlement // that the store has taken
}

func newFlaky() *flaky { return &flaky{Store: memory.New()} }

// fail makes claims and settlements return these errors from now on.
func (f *flaky) fail(claim, settle error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claimErr, f.settleErr = claim, settle
}

// halts makes it write nothing any more.
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

// refuses makes settlements fail that hold one of these, from now on.
func (f *flaky) refuses(these func(*webhooks.Settlement) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = these
}

// refusals returns how many calls failed so.
func (f *flaky) refusals() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// called returns when claims and settlements were tried.
func (f *flaky) called() (claims, settles []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.claims...), append([]time.Time(nil), f.settles...)
}

// doubts makes those methods return this error from now on that make deliveries due,
// although they have.
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

func (f *flaky) UpdateAlert(ctx context.Context, account string, metric webhooks.Metric, change func(*webhooks.AlertStep) error) (int, error) {
	deliveries, err := f.Store.UpdateAlert(ctx, account, metric, change)
	return doubtful(f, deliveries, err)
}

func (f *flaky) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []webhooks.DedupKey) (int, error) {
	deliveries, err := f.Store.EnqueueOnce(ctx, event, dedupKeys)
	return doubtful(f, deliveries, err)
}

func (f *flaky) UpdateWebhook(ctx context.Context, account, id string, change func(*webhooks.Webhook, *notices.Notice) error) (webhooks.Webhook, error) {
	webhook, err := f.Store.UpdateWebhook(ctx, account, id, change)
	return doubtful(f, webhook, err)
}

func (f *flaky) Redeliver(ctx context.Context, account, webhookID, eventID string, notice notices.Notice) error {
	_, err := doubtful(f, 0, f.Store.Redeliver(ctx, account, webhookID, eventID, notice))
	return err
}

func (f *flaky) AdvanceRecovery(ctx context.Context, limit int) (bool, error) {
	advanced, err := f.Store.AdvanceRecovery(ctx, limit)
	return doubtful(f, advanced, err)
}

func (f *flaky) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) ([]webhooks.Task, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = append(f.claims, time.Now())
	if f.claimErr != nil {
		return nil, 0, f.claimErr
	}
	tasks, wait, err := f.Store.ClaimDeliveries(ctx, claim)
	for i := range tasks {
		if f.spoil != nil {
			f.spoil(&tasks[i])
		}
	}
	return tasks, wait, err
}

func (f *flaky) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) ([]int, error) {
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
			_, _ = f.Store.SettleDeliveries(ctx, settlements)
		}
		return nil, err
	}
	for i := range settlements {
		if f.refuse != nil && f.refuse(&settlements[i]) {
			f.refused++
			return nil, errRefused
		}
	}
	f.settlements = append(f.settlements, settlements...)
	return f.Store.SettleDeliveries(ctx, settlements)
}
