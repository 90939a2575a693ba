package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// ClaimDeliveries implements [webhooks.Store]. The first call makes this node one that owns
// shards. It looks first, so that it finds what calls of this node have made pending before. The
// call returns an error that wraps [ErrClock] once this node's clock differs too much.
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	if claim.LongestRetry > 0 {
		s.owned.longestRetry.Store(int64(claim.LongestRetry))
	}
	if err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	s.steps.RUnlock()
	if err := s.checkClock(ctx); err != nil { // before it delivers
		return nil, 0, err
	}
	s.idle.claim()
	look, err := s.lookIfDue(ctx)
	if err != nil {
		return nil, 0, failure(ctx, err)
	}
	tasks, wait, err = s.claims.ClaimDeliveries(ctx, claim)
	if err == nil && len(tasks) == 0 {
		err = s.owned.unreachable()
	}
	return tasks, min(wait, look), err
}

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) (stale []int, err error) {
	return s.claims.SettleDeliveries(ctx, settlements)
}

// Backlog implements [webhooks.Store]. It counts the pending deliveries: 0.1 s for a million.
// OldestDue counts what is being attempted on other nodes as waiting.
func (s *Store) Backlog(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	return s.claims.Backlog(ctx, webhookID)
}

// LongestWait implements [webhooks.Store]. It is about the shards that this node owns.
func (s *Store) LongestWait(ctx context.Context) (time.Duration, error) {
	return s.claims.LongestWait(ctx)
}

// wake calls wake after each report, until ctx is done or the store is closed.
func (s *Store) wake(ctx context.Context, wake func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ownership.ctx, cancel)()
	s.claims.Wake(ctx, wake)
}

// nodeIdle is how long a node keeps its shards without claims.
const nodeIdle = 15 * time.Second

var errIdle = errors.New("postgres: nothing was claimed for long: the shards were left to other nodes")

// idle notes when something was claimed last.
type idle struct {
	after  time.Duration // nodeIdle
	claims chan struct{} // at least one since that was received from

	mu   sync.Mutex
	last time.Time
}

func (i *idle) start() { i.after, i.claims = nodeIdle, make(chan struct{}, 1) }

// claim notes a claim.
func (i *idle) claim() {
	i.mu.Lock()
	i.last = time.Now()
	i.mu.Unlock()
	wake(i.claims)
}

// left returns for how long nothing needs to be claimed still. A worker that finds nothing to claim
// comes again when it is time to look, which may be seldom.
func (i *idle) left(poll time.Duration) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return max(i.after, 2*poll) - time.Since(i.last)
}

// A claimedStore is a Store that delivers while there are claims.
type claimedStore struct{ *Store }

// Deliver waits for a claim. It returns errIdle once there was none for long, and nothing is under
// way.
func (s claimedStore) Deliver(ctx context.Context, to webhooks.Scheduler) error {
	select {
	case <-s.idle.claims:
	case <-ctx.Done():
		return ctx.Err()
	}
	delivering, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for left := s.idle.left(s.options.poll); left > 0 || len(s.underWay()) > 0; left = s.idle.left(s.options.poll) {
			if !sleep(delivering, nil, max(left, leavePause)) {
				return
			}
		}
		stop()
	}()
	err := s.Store.Deliver(delivering, to)
	if delivering.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = errIdle
	}
	return err
}
