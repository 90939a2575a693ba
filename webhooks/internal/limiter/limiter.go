// Package limiter keeps the receivers of webhooks apart: none gets more attempts at a
// time than it can take, and none takes the slots that others need.
//
// It has four mechanisms, each in a file of its own:
//
//   - an AIMD concurrency limit for each webhook (aimd.go): success raises it by one,
//     failure halves it;
//   - a circuit breaker for each webhook (breaker.go): after some failures in a row it is
//     open, and one half-open probe is made now and then until one succeeds;
//   - bulkheads (bulkhead.go): webhooks that are slow or fail have a share of the slots
//     between them, as have those that have never succeeded;
//   - fair queueing (turns.go): webhooks that are slow or fail take turns.
//
// An attempt takes four steps: [Limiter.Begin] takes a slot, [Limiter.Observe] learns
// from the outcome, [Limiter.Release] frees the slot, [Limiter.Recorded] forgets the
// attempt. Meanwhile [Limiter.Tick] finds attempts that take too long (late.go) and, where
// slots are scarce, cuts some short.
//
// The limiter knows ids, durations and outcomes. What is sent, how, and where it is
// stored is the caller's.
package limiter

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
)

// A Config says how much may be in flight.
type Config struct {
	Slots      int // attempts at a time
	PerWebhook int // to one webhook
	PerAccount int // to the webhooks of one account

	// MaxUnrecorded is how many attempts may have ended without being recorded before
	// no more begin.
	MaxUnrecorded int

	Timeout time.Duration // of an attempt

	Jitter *jitter.Source // of the pauses between probes; nil: random
}

// A Limiter decides how many attempts each webhook may have in flight. It knows the
// webhooks with something in flight, and for a while those that had.
//
// Its methods are safe for concurrent use. One goroutine alone begins attempts and ends
// them: what Turns returns is valid until its next call.
type Limiter struct {
	mu   sync.Mutex
	pool // all slots

	perWebhook, perAccount, firstCap, maxUnrecorded int

	jitter *jitter.Source

	webhooks map[string]*webhook
	byUse    list.List // webhooks, longest unused first
	accounts map[string]*account

	capVersion uint64 // see Caps

	queues  [4]queue   // by health; no healthy webhook is in one
	chosen  []*webhook // in the claim of turns under way
	turns   []string   // their ids
	beat    time.Time  // next turn of the slow ones for which nothing was due
	failing int        // slots of webhooks that are slowFailing or open, except attempts cut short

	unproven      pool // slots of healthy webhooks that were unproven when they took them
	perUnproven   int  // firstCap of those
	unprovenLimit int  // of the claim under way, if it leaves each unproven webhook one slot
	unprovenBegun int  // in that claim

	requested       int // slots of requested attempts, except those cut short
	crowdedAccounts int // accounts with as much in flight as they may have
	unrecorded      int // attempts that have ended, until they are recorded

	young      list.List     // slots whose attempt is not late, oldest first
	late       list.List     // slots whose attempt is, and may be cut short; oldest first
	usual      time.Duration // latency of attempts that succeed
	successes  int           // that usual is the average of; fewer than sampleSize: it is not known yet
	maxLatency time.Duration // attempts slower than this always count as late

	overShare bool      // slots became scarce while some webhooks hold more than their share
	inspected time.Time // last inspection of what is in flight
	planned   time.Time // next one, as the caller was told
	resumed   time.Time // end of the last time in which this process was held up: no receiver is blamed for it
}

// New returns a Limiter without webhooks.
func New(config Config) *Limiter {
	return &Limiter{
		pool:          pool{slots: config.Slots},
		perWebhook:    config.PerWebhook,
		perAccount:    config.PerAccount,
		firstCap:      min(firstCap, config.PerWebhook),
		maxUnrecorded: config.MaxUnrecorded,
		jitter:        config.Jitter,
		webhooks:      make(map[string]*webhook),
		accounts:      make(map[string]*account),
		capVersion:    rand.Uint64(), // another one's differs
		unproven:      pool{slots: max(1, config.Slots/2)},
		maxLatency:    max(minLatency, config.Timeout/2),
	}
}

// Room returns how many attempts may begin: as many as there are free slots, unless too
// many wait to be recorded.
func (l *Limiter) Room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.free(), l.slots+l.maxUnrecorded-l.inFlight-l.unrecorded)
}

// InFlight returns how many attempts hold a slot.
func (l *Limiter) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight
}

// Busy reports whether an attempt is in flight or not recorded.
func (l *Limiter) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight > 0 || l.unrecorded > 0
}

// CancelAll cuts short all that is in flight.
func (l *Limiter) CancelAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.webhooks {
		for _, s := range w.slots {
			s.attempt.Cancel()
		}
	}
}

// Evict cuts short what is in flight to the webhook, and returns when it has ended, or
// the error of ctx.
func (l *Limiter) Evict(ctx context.Context, id string) error {
	return l.evict(ctx, func(w *webhook) bool { return w.id == id })
}

// EvictAccount is Evict for all webhooks of an account.
func (l *Limiter) EvictAccount(ctx context.Context, account string) error {
	return l.evict(ctx, func(w *webhook) bool { return w.account.id == account })
}

func (l *Limiter) evict(ctx context.Context, of func(*webhook) bool) error {
	for _, attempt := range l.cancel(of) {
		if err := attempt.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limiter) cancel(of func(*webhook) bool) (attempts []Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.webhooks {
		if !of(w) {
			continue
		}
		for _, s := range w.slots {
			s.attempt.Cancel()
			attempts = append(attempts, s.attempt)
		}
	}
	return attempts
}

// NextWake returns when Tick, or if the caller may claim, Turns is to be called next: at
// the given time at the latest.
func (l *Limiter) NextWake(now, at time.Time, claims bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.planned = l.nextInspection(); !l.planned.IsZero() {
		l.planned = latest(l.planned, now)
		at = earliest(at, l.planned)
	}
	if claims && !l.full() && l.spare() > 0 {
		if w := l.next(l.failingRoom()); w != nil {
			at = earliest(at, w.turn)
		}
	}
	return at
}

// A State tells how a webhook is treated.
type State struct {
	InFlight int  // attempts
	Cap      int  // how many there may be
	Failures int  // attempts that failed since the last success
	Slow     bool // its attempts take long
	Open     bool // its circuit breaker is open
}

// State returns how the webhook is treated.
func (l *Limiter) State(webhook string) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.webhooks[webhook]
	if w == nil {
		return State{Cap: l.firstCap}
	}
	return State{
		InFlight: len(w.slots), Cap: w.limit(), Failures: w.failures, Slow: w.slow,
		Open: w.health == open && !w.trusted,
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
