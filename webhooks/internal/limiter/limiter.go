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

	webhooks map[string]*webhook
	byUse    list.List // webhooks, longest unused first
	accounts map[string]*account
	trusted  map[string]bool // what Trust was called for since the last Tick

	caps       map[string]int // of webhooks whose cap is not firstCap; 0 for those that wait for their turn
	capVersion uint64         // see Caps

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
	resumed   time.Time // end of the last time in which this process was held up: nobody is blamed for it
}

// An Attempt is what takes a slot.
type Attempt interface {
	Cancel()                        // makes it end
	Ended() bool                    // whether it has
	Wait(ctx context.Context) error // returns when it has, or ctx
}

// A Slot is held by an attempt. It belongs to the limiter from Begin to Recorded; the
// zero Slot can be used again after that.
type Slot struct {
	webhook   *webhook
	attempt   Attempt
	begun     time.Time
	turn      bool // begun in a turn: never cut short
	probe     bool // half-open probe
	requested bool
	unproven  bool
	cut       bool // cut short: it counts in no bulkhead any more
	late      bool
	suspends  bool // no other to its webhook begins before it is recorded

	// How many attempts have finished, of all, of its account and of unproven webhooks,
	// when all that was begun before it has.
	mark, accountMark, unprovenMark int

	index   int           // in webhook.slots
	element *list.Element // of Limiter.young or Limiter.late
}

// An Outcome is what an attempt shows of its receiver.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // neither a merit of the receiver's nor its fault
	Success
	Failure
)

// New returns a Limiter without webhooks.
func New(config Config) *Limiter {
	return &Limiter{
		pool:          pool{slots: config.Slots},
		perWebhook:    config.PerWebhook,
		perAccount:    config.PerAccount,
		firstCap:      min(firstCap, config.PerWebhook),
		maxUnrecorded: config.MaxUnrecorded,
		webhooks:      make(map[string]*webhook),
		accounts:      make(map[string]*account),
		trusted:       make(map[string]bool),
		caps:          make(map[string]int),
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

// A Start describes an attempt that begins.
type Start struct {
	Webhook, Account string
	At               time.Time
	Turn             bool // it was claimed by what Turns returned
	Requested        bool // someone asked for it: it takes no turn
	Proven           bool // an earlier attempt to the webhook has succeeded
	Failing          bool // the attempts since the last success have failed
}

// Begin takes a slot, which must be the zero Slot, for an attempt.
func (l *Limiter) Begin(s *Slot, attempt Attempt, start Start) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.webhook(start)
	s.webhook, s.attempt, s.begun, s.turn, s.probe = w, attempt, start.At, start.Turn, w.health == open
	s.mark, s.accountMark, s.unprovenMark = l.mark(), w.account.mark(), l.unproven.mark()
	s.index = len(w.slots)
	w.slots = append(w.slots, s)
	if start.Requested {
		l.request(w, s)
	}
	if s.unproven = !start.Proven; s.unproven {
		l.countUnproven(w, 1)
		l.unprovenBegun++
	}
	w.active = s.begun
	s.element = l.young.PushBack(s)
	l.inFlight++
	if w.account.inFlight++; w.account.inFlight == l.perAccount {
		l.crowdedAccounts++
	}
	l.count(w, 1, 0)
	l.refresh(w)
	l.overShare = l.overShare || l.exceedsShare(w.account)
}

// Observe learns from how an attempt ended and how long it took. If that shows that the
// receiver is down it returns for how long to leave it alone. Of attempts that ended
// together, all are observed before the first is released.
func (l *Limiter) Observe(s *Slot, outcome Outcome, took time.Duration, now time.Time) (rest time.Duration) {
	if outcome == Unknown {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := s.webhook
	usual := l.observeLatency(w, took, outcome, now)
	w.finished++
	l.finish(now)
	w.account.finish(now)
	if s.unproven {
		l.unproven.finish(now)
	}
	switch {
	case outcome == Failure:
		rest = w.fail(s, now) * 7 / 8 // it begins later, and has ended when it is the webhook's turn
	case w.health == open:
		w.closeBreaker(now, l.perWebhook)
	default:
		w.failures = 0
		w.grow(len(w.slots) >= w.cap, l.perWebhook, now)
		if usual {
			l.successes++
			l.usual += (took - l.usual) / time.Duration(min(l.successes, sampleSize))
		}
	}
	l.setHealth(w, w.assess())
	return rest
}

// Release frees the slot of an attempt that has ended.
func (l *Limiter) Release(s *Slot, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := s.webhook
	l.unlist(s)
	w.remove(s)
	w.active = now
	if s.late {
		w.late--
	}
	if w.account.inFlight == l.perAccount {
		l.crowdedAccounts--
	}
	l.inFlight--
	w.account.inFlight--
	if s.cut {
		w.cut--
		l.acquit(w)
	} else {
		l.count(w, -1, 0)
		l.uncount(s)
	}
	l.unrecorded++
	w.unrecorded++
	l.refresh(w)
}

// Suspend lets no other attempt to the webhook begin until this one, which was released,
// is recorded.
func (l *Limiter) Suspend(s *Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.suspends {
		s.suspends = true
		s.webhook.suspended++
	}
	l.refresh(s.webhook)
}

// Recorded forgets an attempt that was released: its result is stored, or given up.
func (l *Limiter) Recorded(s *Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded--
	s.webhook.unrecorded--
	if s.suspends {
		s.webhook.suspended--
		l.refresh(s.webhook)
	}
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
func (l *Limiter) Evict(ctx context.Context, webhook string) error {
	for _, attempt := range l.cancel(webhook) {
		if err := attempt.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limiter) cancel(webhook string) (attempts []Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.webhooks[webhook]; w != nil {
		for _, s := range w.slots {
			s.attempt.Cancel()
			attempts = append(attempts, s.attempt)
		}
	}
	return attempts
}

// cut cuts an attempt short, so that its slot becomes free.
func (l *Limiter) cut(s *Slot) {
	l.unlist(s)
	s.cut = true
	s.webhook.cut++
	l.count(s.webhook, -1, 0)
	l.uncount(s)
	s.attempt.Cancel()
}

// uncount ends that a slot counts as one of a requested attempt, or of an unproven
// webhook.
func (l *Limiter) uncount(s *Slot) {
	if s.requested {
		l.requested--
	}
	if s.unproven {
		l.countUnproven(s.webhook, -1)
	}
	s.requested, s.unproven = false, false
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
		Open: w.health == open && !w.trusted && !l.trusted[webhook],
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
