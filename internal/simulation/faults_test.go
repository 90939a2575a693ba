package simulation_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A fault is the way in which a call to the store fails.
type fault string

const (
	none   fault = ""
	before fault = "before" // fails without an effect
	after  fault = "after"  // fails after it has taken effect
	hang   fault = "hang"   // hangs until its context ends, without an effect; continues when the fault ends
	stall  fault = "stall"  // takes effect, hangs until its context or the fault ends, and fails
	gone   fault = "gone"   // the calling process has died
)

var (
	errOutage = errors.New("the store failed")
	errDead   = errors.New("this process is dead")
)

// A window is a period in which calls of some methods meet a fault.
type window struct {
	from, to time.Duration
	methods  map[string]bool // nil means all
	fault    fault
	chance   float64
}

// faults decides which fault each call meets. The seed does not determine the order of calls at the
// same instant. So if a fault has a probability, the seed does not determine which of these calls
// meet it.
type faults struct {
	mu      sync.Mutex
	rand    *rand.Rand
	windows []window
	armed   map[string][]fault // faults of the next calls, by method
}

// arm adds a fault for the next call of the method.
func (f *faults) arm(method string, what fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed[method] = append(f.armed[method], what)
}

// disarm removes the armed faults that no call has met.
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

// meets returns the fault of a call that is made now, and the end of the fault.
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

// harmless replaces a fault that would stop a bubble's clock: RecordKeyUse is called with a mutex
// held, and the clock stands still while a goroutine waits for a mutex.
func harmless(method string, what fault) fault {
	if method == "RecordKeyUse" && (what == hang || what == stall) {
		return before
	}
	return what
}

// call calls a method of the store through do, with the fault that the call meets.
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
		return nothing, errDead // it took effect, but its process is dead
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
