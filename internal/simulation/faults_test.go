package simulation_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// What can happen to a call of the store.
type fault string

const (
	none   fault = ""
	before fault = "before" // it fails, and nothing has happened
	after  fault = "after"  // it fails, and has happened nevertheless
	hang   fault = "hang"   // it hangs until its context ends, and nothing has happened then
	stall  fault = "stall"  // it happens, and then hangs until its context ends
	gone   fault = "gone"   // its process has died
)

var (
	errOutage = errors.New("the store failed")
	errDead   = errors.New("this process is dead")
)

// A window is a time during which calls of some methods meet a fault.
type window struct {
	from, to time.Duration
	methods  map[string]bool // nil: all
	fault    fault
	chance   float64
}

// faults decide what each call meets. Which call comes first in an instant is not
// the seed's to say, and so not which of them meets what has a chance only.
type faults struct {
	mu      sync.Mutex
	rand    *rand.Rand
	windows []window
	armed   map[string][]fault // what the next calls of a method meet
}

// arm makes the next call of the method meet the fault.
func (f *faults) arm(method string, what fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed[method] = append(f.armed[method], what)
}

// disarm forgets what was armed and met nobody.
func (f *faults) disarm(method string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.armed, method)
}

// stop ends all faults.
func (f *faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.windows = nil
	clear(f.armed)
}

// meets returns what a call meets now, and until when.
func (f *faults) meets(method string, now time.Duration) (what fault, until time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if armed := f.armed[method]; len(armed) > 0 {
		f.armed[method] = armed[1:]
		return harmless(method, armed[0]), now + 2*time.Minute
	}
	for _, w := range f.windows {
		if now >= w.from && now < w.to && (w.methods == nil || w.methods[method]) && f.rand.Float64() < w.chance {
			return harmless(method, w.fault), w.to
		}
	}
	return none, 0
}

// harmless returns a fault that the method can meet in a bubble: a mutex is held over
// RecordKeyUse, and a bubble's time stands still while somebody waits for a mutex.
func harmless(method string, what fault) fault {
	if method == "RecordKeyUse" && (what == hang || what == stall) {
		return before
	}
	return what
}

// call makes a call of the store, or what becomes of it.
func call[T any](f *faulty, ctx context.Context, method string, do func() (T, error)) (result T, err error) {
	var nothing T
	w := f.world
	what, until := w.faults.meets(method, w.now())
	if what != none {
		w.tally.add(method, string(what))
	}
	switch what {
	case before:
		return nothing, errOutage
	case hang:
		select {
		case <-ctx.Done():
			return nothing, ctx.Err()
		case <-f.died:
			return nothing, errDead
		case <-time.After(until - w.now()):
		}
		if err := ctx.Err(); err != nil {
			return nothing, err
		}
	}
	if !f.enter() {
		w.tally.add(method, string(gone))
		return nothing, errDead
	}
	result, err = do()
	f.leave()
	if err == nil && f.isDead() {
		w.tally.add(method, string(gone))
		return nothing, errDead // it has happened, and nobody hears of it
	}
	switch {
	case err != nil:
	case what == after:
		return nothing, errOutage
	case what == stall:
		select {
		case <-ctx.Done():
		case <-f.died:
		case <-time.After(until - w.now()):
		}
		return nothing, errOutage
	}
	return result, err
}
