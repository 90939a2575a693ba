// Package batch gathers values that goroutines add at the same time, so that they are stored
// together (group commit).
package batch

import (
	"runtime"
	"slices"
	"sync"
)

// A Config is how a [Group] makes batches. All fields must be set.
type Config[T comparable] struct {
	Senders int         // batches that are stored at the same time
	Values  int         // values of a batch at most
	Bytes   int         // bytes of a batch at most, not counting its last value
	Size    func(T) int // the bytes of a value

	// Send stores a batch. It takes the values when it is ready to store them, and must take them in
	// any case.
	Send func(take func() []T)
}

// A Group gathers values into batches. While Senders batches are being stored, further values wait and
// share the next one. It has no goroutine while nothing waits.
type Group[T comparable] struct {
	config Config[T]

	mu        sync.Mutex
	waiting   []T
	sending   int
	gathering bool // a sender is about to take the values that wait
}

// New returns a Group.
func New[T comparable](config Config[T]) *Group[T] { return &Group[T]{config: config} }

// Add adds a value to the next batch.
func (g *Group[T]) Add(value T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, value)
	g.start()
}

// Withdraw removes a value, and reports false if a batch has it already.
func (g *Group[T]) Withdraw(value T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, value)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// Enter makes the caller a sender of its own value if there is no other: then it must call Leave.
func (g *Group[T]) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sending > 0 {
		return false
	}
	g.sending++
	return true
}

// Leave ends a sender.
func (g *Group[T]) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sending--
	g.start()
}

// State returns how many batches are being stored and how many values wait.
func (g *Group[T]) State() (sending, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sending, len(g.waiting)
}

// start starts a sender, with the lock, if values wait and none is about to take them.
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

// take returns the values that wait, or as many as a batch may have.
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
