// Package batch gathers values that goroutines add at the same time, so that they are stored
// together (group commit).
package batch

import (
	"runtime"
	"slices"
	"sync"
)

// A Config configures the batches of a [Group]. All fields must be set.
type Config[T comparable] struct {
	Senders int         // maximum number of batches stored at the same time
	Values  int         // maximum number of values in a batch
	Bytes   int         // maximum number of bytes in a batch, not counting its last value
	Size    func(T) int // size of a value in bytes

	// Send stores a batch. It must always call take, and should do so only once it is ready to
	// store the values.
	Send func(take func() []T)
}

// A Group gathers values into batches. While Senders batches are being stored, further values wait
// and share the next batch. A Group has no goroutine while no values wait.
type Group[T comparable] struct {
	config Config[T]

	mu        sync.Mutex
	waiting   []T
	sending   int
	gathering bool // a sender is about to take the waiting values
}

// New returns a Group.
func New[T comparable](config Config[T]) *Group[T] { return &Group[T]{config: config} }

// Add adds values to the next batch.
func (g *Group[T]) Add(values ...T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, values...)
	g.start()
}

// Withdraw removes a waiting value. It returns false if a batch already has the value.
func (g *Group[T]) Withdraw(value T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, value)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// Enter lets the caller store its value without a batch, and returns true, if there is no sender.
// The caller then counts as a sender until it calls Leave.
func (g *Group[T]) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sending > 0 {
		return false
	}
	g.sending++
	return true
}

// Leave ends what Enter began: the caller no longer counts as a sender.
func (g *Group[T]) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sending--
	g.start()
}

// State returns how many senders are storing values and how many values are waiting.
func (g *Group[T]) State() (sending, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sending, len(g.waiting)
}

// start starts a sender if values wait and no sender is about to take them. The caller must hold
// the lock.
func (g *Group[T]) start() {
	if len(g.waiting) > 0 && !g.gathering && g.sending < g.config.Senders {
		g.sending++
		g.gathering = true
		go func() {
			defer g.Leave()
			g.gather()
			g.config.Send(g.take)
		}()
	}
}

// gather waits until no more values arrive.
func (g *Group[T]) gather() {
	for before, n := -1, 0; n > before; {
		before = n
		runtime.Gosched()
		_, n = g.State()
	}
}

// take returns the waiting values, up to the limits of a batch.
func (g *Group[T]) take() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for bytes := 0; n < len(g.waiting) && n < g.config.Values && bytes < g.config.Bytes; n++ {
		bytes += g.config.Size(g.waiting[n])
	}
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.gathering = false
	g.start()
	return batch
}
