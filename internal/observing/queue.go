// Package observing calls the functions of an observe.Observer, so that a slow or broken function
// affects nothing else.
package observing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	maxCalls  = 8192        // maximum number of queued calls; further calls are dropped
	warnEvery = time.Minute // minimum time between two warnings about dropped calls
	grace     = time.Second // how long Close waits for queued calls
)

// A Queue makes calls one after the other. Its goroutine exists only while calls are queued. Add
// never blocks.
type Queue struct {
	logger *slog.Logger
	lost   func(n int) // may be nil

	mu       sync.Mutex
	calls    []func()      // queued from index next
	next     int           // index of the next call
	idle     chan struct{} // closed when no call is queued or running; nil while idle
	dropped  int           // dropped calls since the last call of lost
	unlogged int           // dropped calls since the last warning
	warned   time.Time
}

// NewQueue returns an empty Queue. It passes the number of dropped calls to lost, which may be nil.
func NewQueue(logger *slog.Logger, lost func(n int)) *Queue {
	return &Queue{logger: logger, lost: lost}
}

// Add queues a call, or drops it if the queue is full.
func (q *Queue) Add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls)-q.next >= maxCalls {
		q.drop(1)
		return
	}
	q.calls = append(q.calls, call)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

// drop counts n dropped calls. The caller holds q.mu.
func (q *Queue) drop(n int) {
	q.dropped += n
	q.unlogged += n
	if now := time.Now(); now.Sub(q.warned) >= warnEvery {
		q.logger.Warn("storageapi: observer is too slow; calls were dropped", "lost", q.unlogged)
		q.warned, q.unlogged = now, 0
	}
}

// take returns the next call, or nil if none is queued.
func (q *Queue) take() (call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.dropped; n > 0 && q.lost != nil {
		q.dropped = 0
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
	if q.next++; q.next == maxCalls { // keeps calls from growing without limit
		q.calls, q.next = slices.Delete(q.calls, 0, q.next), 0
	}
	return call
}

// run makes calls until none is queued. If a call ends the goroutine with [runtime.Goexit], run
// continues in another.
func (q *Queue) run() {
	finished := false
	defer func() {
		if !finished {
			q.logger.Error("storageapi: observer function ended its goroutine (runtime.Goexit)")
			go q.run()
		}
	}()
	for call := q.take(); call != nil; call = q.take() {
		Call(q.logger, call)
	}
	finished = true
}

// Drain waits until no call is queued or running. If ctx ends first, it drops the queued calls and
// returns, although a call may still be running. The queue stays usable.
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
	q.logger.Error("storageapi: observer function has not returned; queued calls were dropped")
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(len(q.calls) - q.next)
	clear(q.calls)
	q.calls, q.next = q.calls[:0], 0
}

// Close calls Drain with a timeout of a second.
func (q *Queue) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	q.Drain(ctx)
}

// Call makes a call, and recovers from a panic.
func Call(logger *slog.Logger, call func()) {
	defer Recover(logger)
	call()
}

// Recover recovers from a panic of an Observer's function. It must be deferred.
func Recover(logger *slog.Logger) {
	if p := recover(); p != nil {
		logger.Error("storageapi: observer function panicked") // the value could contain secrets
	}
}
