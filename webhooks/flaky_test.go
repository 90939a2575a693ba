package webhooks_test

import (
	"context"
	"errors"
	"sync"
	"time"

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

	mu          sync.Mutex
	claimErr    error                           // what ClaimDeliveries returns
	settleErr   error                           // what SettleDeliveries returns
	refuse      func(*webhooks.Settlement) bool // those with which it fails
	spoil       func(*webhooks.Task)            // applied to each task that is claimed
	refused     int
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
	if f.settleErr != nil {
		return nil, f.settleErr
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
