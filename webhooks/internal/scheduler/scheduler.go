// Package scheduler decides which pending delivery is attempted when, and how many attempts
// run at a time: no receiver gets more than it can take, and none takes the slots that others
// need.
//
// A store reports pending deliveries (feed.go). The store is the truth and the scheduler's
// memory a hint: a report may be doubled, late or stale, because each delivery is loaded from
// the store just before its attempt, see [Scheduler.Loaded].
//
// Each mechanism has a file of its own:
//
//   - pending.go: the deliveries of each webhook, by due time;
//   - run_queue.go: round robin over the accounts, and over the webhooks of each;
//   - turns.go: slow and failing webhooks take turns within their share of the slots;
//   - requested.go: attempts that a person requested;
//   - aimd.go: an AIMD limit for each webhook: success raises it by one, failure halves it;
//   - breaker.go: a circuit breaker for each webhook: open after some failures in a row, and
//     half-open for one probe at a time until one succeeds;
//   - bulkhead.go: webhooks that are slow or failing have a share of the slots between them,
//     as have those that never succeeded;
//   - late.go: attempts that take too long, some of which are cut short where slots are scarce;
//   - outage.go: a circuit breaker for this host.
//
// An attempt goes through five steps: [Scheduler.Next] takes a slot for it, Loaded says
// whether it is made, [Scheduler.Observe] learns from its outcome, [Scheduler.Release] frees
// the slot, and [Scheduler.End] says what becomes of the delivery once the result is stored.
//
// The scheduler knows IDs, durations and outcomes. It does not know events, requests or the
// store.
package scheduler

import (
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

	// LongestRetry bounds how far in the future a delivery may be due: a later time comes from a
	// clock that was wrong. 0: no bound.
	LongestRetry time.Duration

	Jitter *jitter.Source // of the pauses between probes; nil: random

	// Wake, if not nil, is called after each report, and must return at once.
	Wake func()
}

// A Scheduler holds the pending deliveries that a store has reported, and decides when each
// is attempted. Its methods are safe for concurrent use, return at once and never call the
// store. One goroutine alone begins and ends attempts.
type Scheduler struct {
	perWebhook, perAccount, firstCap, maxUnrecorded int

	longestRetry time.Duration
	jitter       *jitter.Source
	wake         func()
	inbox        inbox

	mu   sync.Mutex // of all below
	pool            // all slots

	epoch time.Time // of the times of items, in milliseconds
	now   time.Time // when mu was locked,
	t     int64     // the same as a time of items

	webhooks roster[*webhook]
	accounts roster[*account]
	dropped  map[*webhook]bool       // forgotten, with attempts under way
	idle     list[webhook, *webhook] // without anything pending or under way, longest idle first

	waiting   int                        // items
	later     timers                     // lanes whose first item is due later
	runQueues [kinds][standings]runQueue // lanes of healthy webhooks with something due
	turn      Standing                   // whose turn is next
	spares    []*line                    // to be used again
	queues    [healths]turnQueue         // webhooks that are not healthy, with something due
	served    uint64                     // attempts begun
	requests  requests
	paused    map[int32]bool // groups
	loads     uint64         // calls of Next
	trouble   error          // reported by the store

	failing int // slots of webhooks that are slowFailing or open, except attempts cut short

	unproven      pool // slots of healthy webhooks that were unproven when they took them
	perUnproven   int  // limit of those, in the Next under way
	unprovenLimit int  // in the Next under way, if it leaves each unproven webhook one slot
	unprovenBegun int  // in that Next

	requested       int // slots of requested attempts, except those cut short
	crowdedAccounts int // accounts with as much in flight as they may have
	unrecorded      int // attempts that have ended, until they are recorded

	young      list[Slot, *Slot] // slots whose attempt is not late, oldest first
	late       list[Slot, *Slot] // slots whose attempt is, and may be cut short; oldest first
	usual      time.Duration     // latency of attempts that succeed
	successes  int               // averaged in usual; below sampleSize usual is not known yet
	maxLatency time.Duration     // slower attempts are always late

	searches  []*account // those that are searching
	overShare bool       // slots became scarce while some webhooks hold more than their share
	inspected time.Time  // last inspection of what is in flight
	planned   time.Time  // next one, as NextWake returned it
	resumed   time.Time  // when this process last went on after a pause: not the receivers' fault
}

// New returns a Scheduler without deliveries.
func New(config Config) *Scheduler {
	return &Scheduler{
		pool:          pool{slots: config.Slots},
		perWebhook:    config.PerWebhook,
		perAccount:    config.PerAccount,
		firstCap:      min(firstCap, config.PerWebhook),
		maxUnrecorded: config.MaxUnrecorded,
		longestRetry:  config.LongestRetry,
		jitter:        config.Jitter,
		wake:          config.Wake,
		epoch:         time.Now(),
		unproven:      pool{slots: max(1, config.Slots/2)},
		maxLatency:    max(minLatency, config.Timeout/2),
	}
}

// lock locks mu, notes the time, and applies the reports that came while mu was held.
func (s *Scheduler) lock() {
	s.mu.Lock()
	s.begun()
}

func (s *Scheduler) begun() {
	s.now = time.Now()
	s.t = s.at(s.now)
	s.drain()
}

// at returns a time as items have it.
func (s *Scheduler) at(t time.Time) int64 { return t.Sub(s.epoch).Milliseconds() }

// dueAt is at for a due time of the store. Without a monotonic reading it is by the wall clock, which
// may have been set since the epoch: only what it differs from now counts.
func (s *Scheduler) dueAt(t time.Time) int64 {
	due := s.at(s.now.Add(t.Sub(s.now)))
	if s.longestRetry > 0 {
		due = min(due, s.t+s.longestRetry.Milliseconds())
	}
	return due
}

// timeOf is the inverse of at.
func (s *Scheduler) timeOf(t int64) time.Time {
	return s.epoch.Add(time.Duration(t) * time.Millisecond)
}

// Room returns how many attempts may begin: as many as there are free slots, unless too
// many wait to be recorded.
func (s *Scheduler) Room() int {
	s.lock()
	defer s.mu.Unlock()
	return min(s.free(), s.slots+s.maxUnrecorded-s.inFlight-s.unrecorded)
}

// InFlight returns how many attempts hold a slot.
func (s *Scheduler) InFlight() int {
	s.lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// Busy reports whether an attempt is in flight or not recorded.
func (s *Scheduler) Busy() bool {
	s.lock()
	defer s.mu.Unlock()
	return s.inFlight > 0 || s.unrecorded > 0
}

// NextWake returns when Tick and, if attempts may begin, Next should be called: at the given
// time at the latest.
func (s *Scheduler) NextWake(at time.Time, mayBegin bool) time.Time {
	s.lock()
	defer s.mu.Unlock()
	if s.planned = s.nextInspection(); !s.planned.IsZero() {
		s.planned = latest(s.planned, s.now)
		at = earliest(at, s.planned)
	}
	if !mayBegin || s.full() {
		return at
	}
	if len(s.later.Heap) > 0 {
		at = earliest(at, s.timeOf(s.later.Heap[0].due()))
	}
	if s.spare() > 0 {
		if w := s.nextTurn(s.failingRoom()); w != nil {
			at = earliest(at, w.turn)
		}
	}
	return earliest(at, s.nextRequest(at))
}

// Tick does periodic work, see NextWake: it finds late attempts, cuts short those that hold more
// than their share of scarce slots, and forgets idle webhooks.
func (s *Scheduler) Tick() {
	s.lock()
	defer s.mu.Unlock()
	s.forgetIdle()
	s.inspect()
}

// A State is the limiter's state of a webhook.
type State struct {
	InFlight int  // attempts
	Cap      int  // how many there may be
	Failures int  // attempts that failed since the last success
	Slow     bool // its attempts take long
	Open     bool // its circuit breaker is open
}

// State returns the limiter's state of a webhook.
func (s *Scheduler) State(webhook string) State {
	s.lock()
	defer s.mu.Unlock()
	w := s.webhooks.all[webhook]
	if w == nil {
		return State{Cap: s.firstCap}
	}
	return State{
		InFlight: w.inFlight, Cap: w.limit(), Failures: w.failures, Slow: w.slow,
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
