package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
)

// An activity records the latest actions of a service's loops, for [WebhookService.Health]. It is
// safe for concurrent use. Create it with newActivity.
type activity struct {
	epoch    time.Time                    // reference time of the stamps
	run      atomic.Pointer[runChange]    // never nil
	round    stamp                        // last round of the run loop
	claimed  stamp                        // last successful claim
	attempt  stamp                        // start of the last attempt
	settling stamp                        // start of the running settlement
	claim    atomic.Pointer[storeFailure] // error of the last claim; nil if it succeeded
	deliver  atomic.Pointer[storeFailure] // why the store reports no pending deliveries; nil if it reports them
	write    atomic.Pointer[storeFailure] // error of the last write; nil if it succeeded
	last     atomic.Pointer[storeFailure] // last failure of any store call
}

// A runChange is a state and the time when it began.
type runChange struct {
	state RunState
	at    time.Time
}

// A storeFailure is the failure of a store call.
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

// A stamp is a time in nanoseconds since its activity's epoch, plus one; 0 means none.
type stamp struct{ atomic.Int64 }

func (a *activity) mark(s *stamp) { s.Store(int64(time.Since(a.epoch)) + 1) }

func (a *activity) at(s *stamp) time.Time {
	if n := s.Load(); n > 0 {
		return a.epoch.Add(time.Duration(n - 1))
	}
	return time.Time{}
}

// failed records a failed store call. step names the call.
func (a *activity) failed(step string, err error) *storeFailure {
	f := &storeFailure{time.Now(), fmt.Errorf("%s: %w", step, err)}
	a.last.Store(f)
	return f
}

// endClaims records the result of a claim and whether attempts began.
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

// isStoreFailure reports whether the store caused the error of a write, rather than a refused
// request or a canceled context.
func isStoreFailure(ctx context.Context, err error) bool {
	var invalid *apierr.ValidationError
	return err != nil && ctx.Err() == nil && !errors.Is(err, auth.ErrErasing) && !errors.Is(err, apierr.ErrExists) && !errors.As(err, &invalid)
}
