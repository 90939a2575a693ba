package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// Health is the state of a service, for probes and alarms. It only reports figures;
// storageapi.HealthThresholds holds the limits.
type Health struct {
	// Run is the state of [WebhookService.Run]. RunSince is when that state began, or the time of New
	// if Run was never called.
	Run      RunState
	RunSince time.Time

	// LastRound is when the loop that begins attempts last made a round. While Run is running, this
	// is at most half a minute ago, even if no delivery is due or the store fails. If it is longer
	// ago, the loop is stuck. Zero means never.
	LastRound time.Time

	// LastClaim is when the store last answered a claim, and LastAttempt when the last attempt began.
	// Both may be an hour ago if no delivery was due. Zero means never.
	LastClaim, LastAttempt time.Time

	// OldestDue is the longest time that a healthy webhook has waited for an attempt. A webhook is
	// healthy if this process delivers for it and its last attempt succeeded. Webhooks that are
	// off, on hold, slow or failing do not count, and neither do recovered deliveries. It is 0 if
	// no webhook waits, and in a process that does not call Run.
	OldestDue time.Duration

	// ReadError is why the store cannot be read now; nil if it can.
	ReadError error

	// WriteError is the error of the last claim or write, or an error if that call has not returned
	// in time; nil if it succeeded. While Run is running, it is cleared within about 10 s of the
	// store's recovery, even without other activity. Without Run a failure counts for a minute.
	WriteError error

	// Halted is why the store is read-only until it is reopened; nil if it is writable.
	Halted error

	// LastError is the last failure of the store, even if the store has recovered, and LastErrorAt
	// its time. The errors in Health hold no secrets, but may name the host, user or file of the
	// store: do not show them to untrusted clients.
	LastError   error
	LastErrorAt time.Time
}

// A RunState is the state of [WebhookService.Run].
type RunState string

// The states of Run.
const (
	RunNotStarted RunState = "not_started" // Run was never called.
	RunUnderWay   RunState = "running"     // Run delivers.

	// RunWaiting lasts from the call to Run until the store begins to report deliveries. It lasts
	// long if another handler in this process delivers for the same store, or if the store cannot be
	// read.
	RunWaiting RunState = "waiting"

	RunDraining RunState = "draining" // The context of Run is done; running attempts are finishing.
	RunEnded    RunState = "ended"    // Run has returned.
)

const (
	maxNotSettled = 2 * storeTimeout // after this time a call to record results counts as hanging
	failureCounts = time.Minute      // how long a failure counts without Run
)

// Health returns the state of the service. It returns within a second, even if the store hangs.
// Usually it takes far less than a millisecond, or slightly more with a store across a network.
// It writes nothing. It queries the store at most once a second, one query at a time, so
// OldestDue and ReadError are up to a second old.
func (s *WebhookService) Health(ctx context.Context) Health {
	d := s.dispatcher
	a := d.activity
	run := a.run.Load()
	h := Health{
		Run: run.state, RunSince: run.at,
		LastRound: a.at(&a.round), LastClaim: a.at(&a.claimed), LastAttempt: a.at(&a.attempt),
		WriteError: a.writeError(run.state), Halted: d.halt.cause(),
	}
	h.OldestDue, h.ReadError = s.storeCheck.result(ctx)
	if f := a.last.Load(); f != nil {
		h.LastError, h.LastErrorAt = f.err, f.at
	}
	return h
}

// writeError returns why the last claim or write failed, or an error if a write hangs.
func (a *activity) writeError(state RunState) error {
	if began := a.at(&a.settling); !began.IsZero() && time.Since(began) > maxNotSettled {
		return fmt.Errorf("a write of results has been running for %v", time.Since(began).Round(time.Second))
	}
	for _, f := range []*storeFailure{a.write.Load(), a.claim.Load(), a.deliver.Load()} {
		if f != nil && (state == RunUnderWay || state == RunWaiting || time.Since(f.at) < failureCounts) {
			return f.err
		}
	}
	return nil
}

const (
	checkReuse = time.Second            // how long a result of the store is reused
	checkWait  = 700 * time.Millisecond // maximum wait: a Kubernetes probe times out after a second
)

// A storeCheck queries the store for the fields of [Health] that depend on it.
type storeCheck struct {
	store     driver.WebhookStore
	scheduler *scheduler.Scheduler
	mu        sync.Mutex
	last      *checkResult
}

// A checkResult holds the result of a query of the store. It is complete once done is closed.
type checkResult struct {
	begun time.Time
	done  chan struct{}
	wait  time.Duration
	err   error
}

// result returns the result of the running query, of the last query if it is recent, or else of a
// new query. While the store hangs, it starts no further query, so a hanging store costs one
// goroutine.
func (k *storeCheck) result(ctx context.Context) (time.Duration, error) {
	k.mu.Lock()
	a := k.last
	if a == nil || a.over() && time.Since(a.begun) >= checkReuse {
		a = &checkResult{begun: time.Now(), done: make(chan struct{})}
		k.last = a
		go k.fetch(a)
	}
	k.mu.Unlock()
	if !a.over() {
		timed, cancel := context.WithTimeout(ctx, checkWait)
		defer cancel()
		select {
		case <-a.done:
		case <-timed.Done():
			return 0, fmt.Errorf("the store has not answered for %v", time.Since(a.begun).Round(time.Millisecond))
		}
	}
	return a.wait, a.err
}

func (k *storeCheck) fetch(a *checkResult) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if a.err = k.store.Ping(ctx); a.err == nil {
		a.wait, a.err = k.scheduler.LongestWait()
	}
	close(a.done)
}

func (a *checkResult) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
