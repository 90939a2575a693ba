// Package observing calls the functions of an observe.Observer so that they hold up and break
// nothing.
package observing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	maxCalls  = 8192        // that wait; later ones are lost
	warnEvery = time.Minute // of calls that are lost
	grace     = time.Second // for calls when all is over
)

// A Queue makes calls, one after the other, on a goroutine that there is only while some
// wait. Add never waits for them.
type Queue struct {
	logger *slog.Logger
	lost   func(n int) // nil: none

	mu     sync.Mutex
	calls  []func()      // that wait, from next on
	next   int           // index of the first
	idle   chan struct{} // closed once no call waits or is under way; nil: it is so
	missed int           // calls that were not made since lost was called
	unsaid int           // and since that was logged
	warned time.Time
}

// NewQueue returns an empty Queue. lost, which may be nil, is told how many calls were not made.
func NewQueue(logger *slog.Logger, lost func(n int)) *Queue {
	return &Queue{logger: logger, lost: lost}
}

// Add has call made, unless too many wait.
func (q *Queue) Add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls)-q.next >= maxCalls {
		q.miss(1)
		return
	}
	q.calls = append(q.calls, call)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

// miss notes that n calls are not made. q.mu is held.
func (q *Queue) miss(n int) {
	q.missed += n
	q.unsaid += n
	if now := time.Now(); now.Sub(q.warned) >= warnEvery {
		q.logger.Warn("storageapi: an Observer is too slow: it is not told of all that happens", "lost", q.unsaid)
		q.warned, q.unsaid = now, 0
	}
}

// take returns the next call, or nil if none waits.
func (q *Queue) take() (call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.missed; n > 0 && q.lost != nil {
		q.missed = 0
		return func() { q.lost(n) }
	}
	if q.next == len(q.calls) {
		clear(q.calls)
		q.calls, q.next = q.calls[:0], 0
		close(q.idle)
		q.idle = nil
		return nil
	}
	call, q.calls[q.next] = q.calls[q.next], nil
	if q.next++; q.next == maxCalls { // so that calls does not grow without end
		q.calls, q.next = slices.Delete(q.calls, 0, q.next), 0
	}
	return call
}

// run makes calls until none waits. One that ends its goroutine ends this one, and another
// goes on.
func (q *Queue) run() {
	over := false
	defer func() {
		if !over {
			q.logger.Error("storageapi: a function of an Observer ended its goroutine")
			go q.run()
		}
	}()
	for call := q.take(); call != nil; call = q.take() {
		Call(q.logger, call)
	}
	over = true
}

// Drain returns once no call waits or is under way. Once ctx is done the calls that wait are
// not made any more, and it returns though one may be under way. Later calls are made again.
func (q *Queue) Drain(ctx context.Context) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	q.logger.Error("storageapi: a function of an Observer does not return, or takes too long: what waits is not told")
	q.mu.Lock()
	defer q.mu.Unlock()
	q.miss(len(q.calls) - q.next)
	clear(q.calls)
	q.calls, q.next = q.calls[:0], 0
}

// Close is Drain for a second.
func (q *Queue) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	q.Drain(ctx)
}

// Call makes a call, which may panic.
func Call(logger *slog.Logger, call func()) {
	defer Recover(logger)
	call()
}

// Recover, deferred, ends a panic of a function of an Observer.
func Recover(logger *slog.Logger) {
	if p := recover(); p != nil {
		logger.Error("storageapi: a function of an Observer panicked") // its value could hold anything
	}
}
