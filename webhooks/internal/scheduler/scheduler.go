// Package scheduler decides when each pending delivery is attempted, and how many attempts run
// concurrently. It keeps receivers from being overloaded, and from taking the slots that other
// receivers need.
//
// A store reports pending deliveries (feed.go). The store is authoritative, and the scheduler's
// memory is a hint. Reports may be duplicated, late or stale, because each delivery is loaded from
// the store again just before its attempt, see [Scheduler.Loaded].
//
// Each mechanism has its own file:
//
//   - pending.go: the deliveries of each webhook, by due time;
//   - run_queue.go: round robin over the accounts, and over the webhooks of each;
//   - snooze.go: webhooks that their users have paused, until the pause ends;
//   - turns.go: slow and failing webhooks take turns within their share of the slots;
//   - requested.go: attempts that a person requested;
//   - aimd.go: an AIMD limit for each webhook: success raises it by one, failure halves it;
//   - breaker.go: a circuit breaker for each webhook, which opens after consecutive failures and
//     then lets through one probe at a time until one succeeds;
//   - bulkhead.go: all slow and failing webhooks together have a share of the slots, and so have
//     all webhooks without a success;
//   - late.go: detects late attempts, and cancels some of them while slots are scarce;
//   - outage.go: a circuit breaker for this host.
//
// An attempt goes through five steps: [Scheduler.Next] takes a slot, Loaded decides whether to
// make the attempt, [Scheduler.Observe] evaluates its outcome, [Scheduler.FreeSlot] frees the
// slot, and [Scheduler.End] reschedules or forgets the delivery once the result is stored.
//
// The scheduler knows IDs, durations and outcomes. It does not know events, requests or the
// store.
package scheduler

import (
	"sync"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
)

// A Config holds the limits on attempts.
type Config struct {
	Slots      int // maximum concurrent attempts
	PerWebhook int // maximum for one webhook
	PerAccount int // maximum for the webhooks of one account

	// MaxUnrecorded is the maximum number of ended attempts without a stored result. No attempts
	// begin while it is reached.
	MaxUnrecorded int

	Timeout time.Duration // of an attempt

	// LongestRetry limits how far in the future a delivery may be due, because only a wrong clock
	// can have set a later due time. 0 means no limit.
	LongestRetry time.Duration

	Jitter *jitter.Source // for the pauses between probes; nil means random

	Wall func() time.Time // the clock by which pauses of webhooks end; default: time.Now

	// Wake, if not nil, is called after each report. It must not block.
	Wake func()
}

// A Scheduler holds the pending deliveries that a store has reported, and decides when each is
// attempted. Its methods are safe for concurrent use, never block and never call the store. Only
// one goroutine may begin and end attempts.
type Scheduler struct {
	perWebhook, perAccount, firstCap, maxUnrecorded int

	longestRetry time.Duration
	jitter       *jitter.Source
	wall         func() time.Time
	wake         func()
	inbox        inbox

	mu   sync.Mutex // guards all fields below
	pool            // all slots

	epoch time.Time // item times are milliseconds since then
	now   time.Time // time when mu was last locked
	t     int64     // now, as an item time

	webhooks map[string]*webhook
	accounts map[string]*account
	dropped  map[*webhook]bool       // forgotten webhooks with attempts in flight
	idle     list[webhook, *webhook] // nothing pending or in flight; longest idle first

	waiting   int                        // number of items
	later     timers                     // lanes whose first item is due later
	runQueues [kinds][standings]runQueue // lanes of healthy webhooks with a due item
	turn      Standing                   // the standing whose turn is next
	spares    []*line                    // for reuse
	queues    [healths]turnQueue         // unhealthy webhooks with a due item
	served    uint64                     // number of attempts begun
	requests  requests
	paused    map[int32]bool // paused groups
	loads     uint64         // number of calls to Next
	trouble   error          // reported by the store

	failing int // slots of slowFailing and open webhooks, except canceled attempts

	unproven      pool // slots that healthy webhooks took while unproven
	perUnproven   int  // limit per unproven webhook in the current Next
	unprovenLimit int  // limit on unproven slots in the current Next, if perUnproven is 1; else 0
	unprovenBegun int  // unproven slots taken in the current Next

	requested       int // slots of requested attempts, except canceled ones
	crowdedAccounts int // accounts at their limit
	unrecorded      int // ended attempts without a stored result

	young      list[Slot, *Slot] // slots of attempts that are not late, oldest first
	late       list[Slot, *Slot] // slots of late attempts that may be canceled, oldest first
	usual      time.Duration     // average latency of successful attempts
	successes  int               // samples in usual; below sampleSize, usual is not known yet
	maxLatency time.Duration     // slower attempts are always late

	searches  []*account // accounts for which searching is set
	overShare bool       // slots became scarce while some webhooks hold more than their share
	inspected time.Time  // last inspection of attempts
	offset    int64      // wall clock minus item times, in milliseconds
	planned   time.Time  // next inspection, as returned by NextWake
	resumed   time.Time  // end of the last suspension of this process, for which no receiver is to blame
}

// New returns an empty Scheduler.
func New(config Config) *Scheduler {
	if config.Wall == nil {
		config.Wall = time.Now
	}
	return &Scheduler{
		pool:          pool{slots: config.Slots},
		perWebhook:    config.PerWebhook,
		perAccount:    config.PerAccount,
		firstCap:      min(firstCap, config.PerWebhook),
		maxUnrecorded: config.MaxUnrecorded,
		longestRetry:  config.LongestRetry,
		jitter:        config.Jitter,
		wall:          config.Wall,
		wake:          config.Wake,
		epoch:         time.Now(),
		webhooks:      make(map[string]*webhook),
		accounts:      make(map[string]*account),
		offset:        config.Wall().UnixMilli(),
		unproven:      pool{slots: max(1, config.Slots/2)},
		maxLatency:    max(minLatency, config.Timeout/2),
	}
}

// lock locks mu, sets the time, and applies queued reports.
func (s *Scheduler) lock() {
	s.mu.Lock()
	s.locked()
}

func (s *Scheduler) locked() {
	s.now = time.Now()
	s.t = s.at(s.now)
	s.drain()
}

// at converts t to an item time.
func (s *Scheduler) at(t time.Time) int64 { return t.Sub(s.epoch).Milliseconds() }

// dueAt converts a due time of the store to an item time. A due time is wall-clock time. The wall
// clock may have been set since the epoch, so dueAt uses the difference from now.
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

// Room returns the number of attempts that may begin: the free slots, or fewer if too many
// results are not recorded yet.
func (s *Scheduler) Room() int {
	s.lock()
	defer s.mu.Unlock()
	return min(s.free(), s.slots+s.maxUnrecorded-s.inFlight-s.unrecorded)
}

// InFlight returns the number of attempts that hold a slot.
func (s *Scheduler) InFlight() int {
	s.lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// Busy reports whether any attempt is in flight or has no recorded result yet.
func (s *Scheduler) Busy() bool {
	s.lock()
	defer s.mu.Unlock()
	return s.inFlight > 0 || s.unrecorded > 0
}

// NextWake returns when to call Tick and, if mayBegin is set, Next. The result is never after at.
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

// Tick does periodic work, see NextWake. It marks late attempts, cancels late attempts of
// webhooks that hold more than their share of scarce slots, and forgets idle webhooks.
func (s *Scheduler) Tick() {
	s.lock()
	defer s.mu.Unlock()
	s.forgetIdle()
	s.inspect()
}

// A State is the state of a webhook's limiter.
type State struct {
	InFlight int  // attempts
	Cap      int  // limit on InFlight
	Failures int  // consecutive failed attempts
	Slow     bool // its attempts take long
	Open     bool // its circuit breaker is open

	OpenUntil time.Time // earliest start of the next probe, if Open
	Known     bool      // this process attempts its deliveries
}

// State returns the state of a webhook's limiter.
func (s *Scheduler) State(webhook string) State {
	s.lock()
	defer s.mu.Unlock()
	w := s.webhooks[webhook]
	if w == nil {
		return State{Cap: s.firstCap}
	}
	state := State{
		InFlight: w.inFlight, Cap: w.limit(), Failures: w.failures, Slow: w.slow,
		Open: w.health == open && !w.trusted, Known: !w.paused,
	}
	if state.Open {
		state.OpenUntil = w.turn
	}
	return state
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
