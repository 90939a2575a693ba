package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// Health tells how a service does, for probes and alarms. What follows from it is the
// caller's: see storageapi.HealthThresholds.
type Health struct {
	// Run is what Run is doing, and RunSince since when: since New if it was never called.
	Run      RunState
	RunSince time.Time

	// LastRound is when the loop that begins attempts last went round; while Run is under way
	// that is no more than half a minute ago, also if there is nothing to do and if the store
	// fails. If it is longer ago the loop is stuck. Zero: never.
	LastRound time.Time

	// LastClaim is when the store last answered a claim, and LastAttempt when an attempt last
	// began. While there is nothing to do that may be an hour ago. Zero: never.
	LastClaim, LastAttempt time.Time

	// OldestDue is how long the webhook that waits longest for an attempt has waited, among those
	// for which this process delivers and whose last attempt succeeded. Webhooks that are off, on
	// hold, slow or failing do not count, nor do recovered deliveries. 0 if none waits, and in a
	// process that does not call Run.
	OldestDue time.Duration

	// ReadError is why the store cannot be read now; nil if it can.
	ReadError error

	// WriteError is why the last claim or write failed, or does not end; nil if none did. While
	// Run is under way it finds out within some 10 s that the store can be written again, also
	// if nothing else happens. Without Run a failure counts for a minute.
	WriteError error

	// Halted is why the store writes nothing any more until it is opened again; nil
	// if it does.
	Halted error

	// LastError is the last failure of the store, also if it is over, and LastErrorAt when
	// that was. Neither this nor the errors above hold secrets; they may name the host, user
	// or file of the store: keep them out of answers to strangers.
	LastError   error
	LastErrorAt time.Time
}

// A RunState is what [WebhookService.Run] is doing.
type RunState string

// The states of Run.
const (
	RunNotStarted RunState = "not_started" // It was never called.
	RunUnderWay   RunState = "running"     // It delivers.

	// RunWaiting is from the call of Run until the store begins to report deliveries: for long, if
	// another handler in this process delivers for the same store, or if the store cannot be read.
	RunWaiting RunState = "waiting"

	RunDraining RunState = "draining" // Its context is done: attempts under way end.
	RunEnded    RunState = "ended"    // It has returned.
)

const (
	maxNotSettled = 2 * storeTimeout // until a call to record results is taken for one that hangs
	failureCounts = time.Minute      // without Run
)

// Health tells how the service does. It returns within a second, whatever the store does;
// it takes far less than a millisecond, and some more on a store beyond a network. It
// writes nothing. However often it is called, the store is asked once a second at most, and
// once at a time: what it says of OldestDue and ReadError is up to a second old.
func (s *WebhookService) Health(ctx context.Context) Health {
	d := s.dispatcher
	a := d.activity
	run := a.run.Load()
	h := Health{
		Run: run.state, RunSince: run.at,
		LastRound: a.at(&a.round), LastClaim: a.at(&a.claimed), LastAttempt: a.at(&a.attempt),
		WriteError: a.writeError(run.state), Halted: d.halt.cause(),
	}
	h.OldestDue, h.ReadError = s.asker.ask(ctx)
	if f := a.last.Load(); f != nil {
		h.LastError, h.LastErrorAt = f.err, f.at
	}
	return h
}

// writeError returns why the last claim or write failed, or does not end.
func (a *activity) writeError(state RunState) error {
	if began := a.at(&a.settling); !began.IsZero() && time.Since(began) > maxNotSettled {
		return fmt.Errorf("recording results has not ended for %v", time.Since(began).Round(time.Second))
	}
	for _, f := range []*storeFailure{a.write.Load(), a.claim.Load(), a.deliver.Load()} {
		if f != nil && (state == RunUnderWay || state == RunWaiting || time.Since(f.at) < failureCounts) {
			return f.err
		}
	}
	return nil
}

const (
	answerGood = time.Second            // an answer of the store is given again
	answerIn   = 700 * time.Millisecond // and waited for: Kubernetes gives a probe a second
)

// An asker asks the store for its part of a [Health].
type asker struct {
	store     Store
	scheduler *scheduler.Scheduler
	mu        sync.Mutex
	last      *answer
}

// An answer is one of the store, once done is closed.
type answer struct {
	asked time.Time
	done  chan struct{}
	wait  time.Duration
	err   error
}

// ask returns the answer under way, or the last one if that is good, or asks. A store that
// does not answer is not asked again meanwhile, and costs one goroutine.
func (k *asker) ask(ctx context.Context) (time.Duration, error) {
	k.mu.Lock()
	a := k.last
	if a == nil || a.over() && time.Since(a.asked) >= answerGood {
		a = &answer{asked: time.Now(), done: make(chan struct{})}
		k.last = a
		go k.fetch(a)
	}
	k.mu.Unlock()
	if !a.over() {
		timed, cancel := context.WithTimeout(ctx, answerIn)
		defer cancel()
		select {
		case <-a.done:
		case <-timed.Done():
			return 0, fmt.Errorf("the store has not answered for %v", time.Since(a.asked).Round(time.Millisecond))
		}
	}
	return a.wait, a.err
}

func (k *asker) fetch(a *answer) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if a.err = k.store.Ping(ctx); a.err == nil {
		a.wait, a.err = k.scheduler.LongestWait()
	}
	close(a.done)
}

func (a *answer) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
