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

// A world is a simulated service with everybody around it. It outlives the bubbles of
// its eras.
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

	behind sync.WaitGroup // what goes on behind the actors

	era   era
	began time.Time    // in this bubble
	ended atomic.Bool  // the day has, and everything is to come right
	wall  atomic.Int64 // by how much the service's clock is ahead

	path   string
	disk   *disk
	clock  time.Duration // by which the system's is set
	system testclock.Clock

	mu       sync.Mutex
	kept     store.Store // nil: it is closed
	readers  int         // of kept
	host     *host       // nil: it is down
	process  int
	up       time.Duration // since when the host is
	troubled time.Duration // until then something was wrong
	gone     map[string]time.Duration
}

// newWorld returns the world of a seed: on a file in the directory, or in memory if
// there is none.
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

// now returns how much of the day is over, whatever any clock says.
func (w *world) now() time.Duration { return w.era.from + time.Since(w.began) }

// wallNow is the service's clock.
func (w *world) wallNow() time.Time { return time.Now().Add(time.Duration(w.wall.Load())) }

// run lives through the seed, and returns what is to be told of it, if anything.
func (w *world) run(t *testing.T) string {
	lived := time.Duration(0) // eras overrun, for what is begun is brought to an end
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

// live lives through one era.
func (w *world) live(ctx context.Context, last bool) {
	if w.path == "" {
		w.kept = memory.New() // in the bubble: it is in one era only
	}
	w.receivers.open()
	w.start()
	if w.era.from > 0 {
		w.tell("host", nil, "goes on with its clock set to %s", time.Now().Format(time.DateTime))
		if before := w.plan.eras[0]; w.era.ahead > before.ahead+w.era.from {
			w.ledger.clockWasSet() // ahead, as if it had been so long
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

// lookupsLast is longer than any lookup that goes on though no request waits for it.
const lookupsLast = 2 * time.Minute

// comeRight ends all faults and gives what is owed the time that it may take.
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
	longest := time.Duration(0)
	for _, wait := range w.plan.config.Retry.Delays {
		longest = max(longest, wait)
	}
	time.Sleep(longest*12/10 + time.Hour)
}

// strikes does to the host and the receivers what the plan says.
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
			if how != full { // it is refused until the file is opened again
				w.restart(strikeKill)
			}
		case strikeClock:
			// Ahead only: tests of store/bolt set it back.
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

// burst publishes events together, with contexts that end at all looks.
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

// setClock sets the system's clock as the file sees it, by so much against what it is.
func (w *world) setClock(by time.Duration) {
	w.tell("host", nil, "has the clock of its system at %v from now on", by)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = by
	w.system.RunAhead(by)
}

// starts returns how often the host was started.
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

// trouble notes that something is wrong until then.
func (w *world) trouble(until time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.troubled = max(w.troubled, until)
}

// aftermath is how long a store's failure has effects: results wait for up to a
// minute, calls hang for ten seconds.
const aftermath = 75 * time.Second

// calmSince returns since when nothing was wrong with the host and its store, and
// whether that is so now.
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

// truth asks the store itself, past all faults, once it is open.
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

// openStore opens the file again.
func (w *world) openStore() {
	if w.path == "" {
		return
	}
	w.backups.check()
	kept, err := bolt.Open(w.path, boltfault.SystemClock(w.system.Now).(bolt.Option))
	if err != nil {
		w.breach("a file opens again", nil, "%v", err)
		panic(fmt.Sprintf("seed %d: %v", w.seed, err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = kept
	w.disk.holds(kept)
}
