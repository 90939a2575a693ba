package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/auth"
)

// An activity is what the loops of a service did last, for [WebhookService.Health]. It is
// safe for concurrent use. The zero activity is that of a service that was just made,
// once begun is called.
type activity struct {
	epoch    time.Time                    // of the stamps
	run      atomic.Pointer[runChange]    // never nil
	round    stamp                        // of the run loop, the last
	claimed  stamp                        // when a claim last succeeded
	attempt  stamp                        // when an attempt last began
	settling stamp                        // when the settlement under way began
	claim    atomic.Pointer[storeFailure] // why the last claim failed; nil: it did not
	deliver  atomic.Pointer[storeFailure] // why the store reports no deliveries; nil: it does
	write    atomic.Pointer[storeFailure] // why the last write failed
	last     atomic.Pointer[storeFailure] // of all steps
}

// A runChange is a state, and when it began.
type runChange struct {
	state RunState
	at    time.Time
}

// A storeFailure is a step that failed because of the store.
type storeFailure struct {
	at  time.Time
	err error
}

func newActivity() *activity {
	a := &activity{epoch: time.Now()}
	a.enter(RunNotStarted)
	return a
}

func (a *activity) enter(state RunState) { a.run.Store(&runChange{state, time.Now()}) }

// A stamp is a time, as nanoseconds since the epoch of its activity and one more; 0: none.
type stamp struct{ atomic.Int64 }

func (a *activity) mark(s *stamp) { s.Store(int64(time.Since(a.epoch)) + 1) }

func (a *activity) at(s *stamp) time.Time {
	if n := s.Load(); n > 0 {
		return a.epoch.Add(time.Duration(n - 1))
	}
	return time.Time{}
}

// failed notes that a step failed because of the store.
func (a *activity) failed(step string, err error) *storeFailure {
	f := &storeFailure{time.Now(), fmt.Errorf("%s: %w", step, err)}
	a.last.Store(f)
	return f
}

// endClaims notes how claims have ended, and whether attempts begin by them.
func (a *activity) endClaims(begun int, err error) {
	if begun > 0 {
		a.mark(&a.attempt)
	}
	if err != nil {
		a.claim.Store(a.failed("claim", err))
		return
	}
	a.mark(&a.claimed)
	a.claim.Store(nil)
}

// isStoreFailure reports whether an error of a step that writes is the store's fault, and
// not what its caller asked for or that the caller has gone.
func isStoreFailure(ctx context.Context, err error) bool {
	var invalid *ValidationError
	return err != nil && ctx.Err() == nil && !errors.Is(err, auth.ErrErasing) && !errors.Is(err, ErrExists) && !errors.As(err, &invalid)
}
