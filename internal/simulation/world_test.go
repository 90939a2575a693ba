package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/memory"
)

// A world is a simulated service with its clients and receivers. It outlives the bubbles of its
// eras.
type world struct {
	seed      uint64
	plan      plan
	story     story
	tally     *tally
	faults    *faults
	ledger    *ledger
	receivers *receivers
	accounts  []*account
	leaver    *leaver
	backups   *backupper
	flood     *flood
	events    *events
	ops       atomic.Int64
	requests  atomic.Int64

	perWebhook, perAccount int

	behind sync.WaitGroup // background goroutines besides the actors

	era   era
	began time.Time    // start of the current bubble
	ended atomic.Bool  // the day is over, and no more faults occur
	wall  atomic.Int64 // offset of the service's clock

	path   string
	disk   *disk
	clock  time.Duration // offset of the system's clock
	system testclock.Clock

	mu       sync.Mutex
	kept     store.Store // nil means closed
	readers  int         // number of running calls of truth
	host     *host       // nil means down
	process  int
	up       time.Duration // when the host was started
	troubled time.Duration // until then faults or their effects are possible
	gone     map[string]time.Duration
}

// newWorld returns the world of a seed, with a file in dir, or in memory if dir is empty.
func newWorld(seed uint64, dir string, tally *tally) *world {
	w := &world{seed: seed, plan: newPlan(seed, dir != ""), tally: tally, gone: make(map[string]time.Duration)}
	w.faults = &faults{rand: rand.New(rand.NewPCG(seed, 2)), windows: w.plan.windows, armed: make(map[string][]fault)}
	w.ledger, w.receivers, w.events = newLedger(w), newReceivers(w), newEvents(w)
	w.perWebhook = min(16, w.plan.config.Concurrency.Total)
	w.perAccount = max(w.plan.config.Concurrency.Total/2, w.perWebhook)
	for i := range w.plan.accounts {
		w.accounts = append(w.accounts, newAccount(w, i))
	}
	w.leaver, w.backups, w.flood = newLeaver(w), newBackupper(w), newFlood(w)
	if dir != "" {
		w.path = filepath.Join(dir, "storage.db")
		w.disk = &disk{path: w.path}
	}
	return w
}

// now returns the time of the simulated day, regardless of any clock that was set.
func (w *world) now() time.Duration { return w.era.from + time.Since(w.began) }

// wallNow returns the time of the service's clock.
func (w *world) wallNow() time.Time { return time.Now().Add(time.Duration(w.wall.Load())) }

// run runs the seed and returns its breaches, or "" if there are none.
func (w *world) run(t *testing.T) string {
	lived := time.Duration(0) // eras may end late, because running operations are finished
	for i, era := range w.plan.eras {
		testbubble.Run(t, func(t *testing.T) {
			time.Sleep(era.ahead)
			era.from = max(era.from, lived)
			w.era, w.began = era, time.Now()
			w.live(t.Context(), i == len(w.plan.eras)-1)
			lived = w.now()
		})
	}
	w.tally.seed(int(w.ops.Load()))
	return w.story.String()
}

// live runs one era.
func (w *world) live(ctx context.Context, last bool) {
	if w.path == "" {
		w.kept = memory.New() // created in the bubble, because it exists in one era only
	}
	w.receivers.open()
	w.start()
	if w.era.from > 0 {
		w.tell("host", nil, "goes on with its clock set to %s", time.Now().Format(time.DateTime))
		if before := w.plan.eras[0]; w.era.ahead > before.ahead+w.era.from {
			w.ledger.clockWasSet() // the clock was set ahead
		}
	}
	var actors sync.WaitGroup
	share := float64(w.era.to-w.era.from) / float64(day)
	for _, a := range w.accounts {
		actors.Go(func() { a.clients.live(ctx, share) })
		actors.Go(func() { a.subscriber.live(ctx, share) })
		actors.Go(func() { a.publisher.live(ctx, share) })
	}
	actors.Go(func() { w.leaver.live(ctx, share) })
	actors.Go(func() { w.backups.live(ctx, share) })
	actors.Go(func() { w.flood.live(ctx) })
	actors.Go(func() { w.strikes(ctx) })
	if w.plan.crowd > 0 && w.era.from == 0 {
		actors.Go(func() { w.crowd(ctx) })
	}
	time.Sleep(w.era.to - w.now())
	actors.Wait()
	w.behind.Wait()
	if last && !w.broken() {
		w.comeRight()
		w.judge()
	}
	w.stop(strikeStop)
	w.receivers.close()
	w.behind.Wait()
	time.Sleep(lookupsLast)
	if last && w.path == "" {
		_ = w.kept.Close()
	}
	synctest.Wait()
}

// lookupsLast exceeds the duration of lookups that continue after their requests have ended.
const lookupsLast = 2 * time.Minute

// comeRight ends all faults, and waits for the longest retry delay plus a margin, so that all
// deliveries can arrive.
func (w *world) comeRight() {
	w.tell("world", nil, "comes right")
	w.ended.Store(true)
	w.faults.stop()
	w.receivers.starve(0)
	if w.disk != nil {
		w.disk.mend()
	}
	w.receivers.mu.Lock()
	for _, r := range w.receivers.hosts {
		if r.mood != leaves {
			r.mood, r.since = well, w.now()
		}
	}
	w.receivers.mu.Unlock()
	w.restart(strikeStop)
	for _, a := range w.accounts {
		a.subscriber.resume(context.Background())
	}
	longest := time.Duration(0)
	for _, wait := range w.plan.config.Retry.Delays {
		longest = max(longest, wait)
	}
	time.Sleep(longest*12/10 + time.Hour)
}

// strikes carries out the strikes of the plan.
func (w *world) strikes(ctx context.Context) {
	for _, s := range w.plan.strikes {
		if s.at < w.era.from || s.at >= w.era.to {
			continue
		}
		time.Sleep(s.at - w.now())
		w.ops.Add(1)
		switch s.what {
		case strikeStop, strikeHasty, strikeKill:
			w.restart(s.what)
		case strikeExhaust:
			w.tell("host", nil, "has no descriptors for %v", s.for_)
			w.receivers.starve(w.now() + s.for_)
			w.trouble(w.now() + s.for_)
		case strikeWall:
			by := []time.Duration{-time.Hour, -time.Minute, time.Minute, time.Hour, 36 * time.Hour}[s.arg%5]
			w.tell("host", nil, "has its clock set by %v", by)
			w.wall.Add(int64(by))
		case strikeDisk:
			how := []string{full, readOnly, syncBefore, syncAfter}[s.arg%4]
			w.trouble(w.now() + s.for_)
			if !w.disk.fail(how, func() { w.tally.add("commit", how) }) {
				continue
			}
			w.tell("disk", nil, "fails for %v: %s", s.for_, how)
			w.burst(ctx)
			time.Sleep(s.for_)
			w.disk.mend()
			w.tell("disk", nil, "is well again")
			if how != full { // commits are refused until the file is reopened
				w.restart(strikeKill)
			}
		case strikeClock:
			// The clock is only set ahead here. Tests of store/bolt set it back.
			w.setClock([]time.Duration{31 * day, 366 * day}[s.arg%2])
			w.behind.Go(func() {
				time.Sleep(min(s.for_, w.era.to-w.now()))
				w.setClock(0)
			})
		case strikeMood:
			var hosts []string
			for _, a := range w.accounts {
				hosts = append(hosts, a.subscriber.moody()...)
			}
			if len(hosts) == 0 {
				continue
			}
			host := hosts[s.arg%len(hosts)]
			mood := []mood{slow, failing, asking, hanging, refuses, hanging, failing, well, leaves}[s.arg/64%9]
			w.receivers.setMood(host, mood)
			w.behind.Go(func() {
				time.Sleep(s.for_)
				w.receivers.setMood(host, well)
			})
		}
	}
}

// burst publishes events concurrently, with contexts that end at different checks.
func (w *world) burst(ctx context.Context) {
	var all sync.WaitGroup
	for _, a := range w.accounts {
		for looks := range 4 {
			e := w.events.add(a)
			dying, end := newDying(ctx, 2*looks)
			all.Go(func() {
				defer end()
				a.publisher.publishOne(dying, e, 2*looks)
			})
		}
	}
	all.Wait()
}

// setClock sets the offset of the system's clock for the file.
func (w *world) setClock(by time.Duration) {
	w.tell("host", nil, "has the clock of its system at %v from now on", by)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = by
	w.system.RunAhead(by)
}

// starts returns how many times a host was started.
func (w *world) starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.process
}

func (w *world) clockSet() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

// trouble records that there are faults until the given time.
func (w *world) trouble(until time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.troubled = max(w.troubled, until)
}

// aftermath is how long a store failure has effects: results wait for up to a minute, and calls
// hang for ten seconds.
const aftermath = 75 * time.Second

// calmSince returns the end of the last trouble with the host and its store. calm is false if there
// is trouble now or the host is down.
func (w *world) calmSince() (since time.Duration, calm bool) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if since = w.up; w.troubled > 0 {
		since = max(since, w.troubled+aftermath)
	}
	for _, window := range w.plan.windows {
		if window.from <= now && !w.ended.Load() {
			since = max(since, window.to+aftermath)
		}
	}
	return since, since <= now && w.host != nil
}

// deleted returns when the deletion of a webhook was acknowledged.
func (w *world) deleted(webhook string) (at time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok = w.gone[webhook]
	return at, ok
}

func (w *world) isDeleted(webhook string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[webhook] = w.now()
}

// truth calls ask with the store, without injected faults, as soon as the store is open.
func (w *world) truth(ask func(context.Context, store.Store)) {
	for {
		w.mu.Lock()
		kept := w.kept
		if kept != nil {
			w.readers++
		}
		w.mu.Unlock()
		if kept != nil {
			ask(context.Background(), kept)
			w.mu.Lock()
			w.readers--
			w.mu.Unlock()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// closeStore closes the file.
func (w *world) closeStore() {
	if w.path == "" {
		return
	}
	w.mu.Lock()
	kept := w.kept
	w.kept = nil
	w.mu.Unlock()
	for kept != nil {
		w.mu.Lock()
		busy := w.readers > 0
		w.mu.Unlock()
		if !busy {
			break
		}
		time.Sleep(time.Millisecond)
	}
	w.disk.mend()
	w.disk.holds(nil)
	if kept != nil {
		if err := kept.Close(); err != nil {
			w.tell("store", nil, "closes: %v", err)
		}
	}
}

// openStore reopens the file.
func (w *world) openStore() {
	if w.path == "" {
		return
	}
	w.backups.check()
	kept, err := bolt.Open(w.path, w.disk.faults.Option, boltfault.SystemClock(w.system.Now))
	if err != nil {
		w.breach("a file opens again", nil, "%v", err)
		panic(fmt.Sprintf("seed %d: %v", w.seed, err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = kept
	w.disk.holds(kept)
}
