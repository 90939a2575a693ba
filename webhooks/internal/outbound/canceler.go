package outbound

import (
	"context"
	"io"
	"sync"
	"time"
)

// A Canceler cancels a Post from any goroutine, and lets others wait until its owner has called
// End. The zero Canceler is ready to use. Every Post needs one, so it matters that a Canceler
// costs less than a context and a WaitGroup.
type Canceler struct {
	mu       sync.Mutex
	canceled bool
	held     io.Closer // closed by Cancel to unblock the Post
	ended    bool
	done     chan struct{} // closed by End; nil until the first Wait
}

// Cancel interrupts the Post. Bytes already handed to the system may still be sent.
func (c *Canceler) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.canceled = true
	if c.held != nil {
		_ = c.held.Close()
	}
}

// Canceled reports whether Cancel was called.
func (c *Canceler) Canceled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canceled
}

// setCloser sets the closer that Cancel closes; nil means none. It returns false if the Post has
// already been canceled.
func (c *Canceler) setCloser(held io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = held
	return !c.canceled
}

// until returns a context that ends at the deadline or when Cancel is called.
func (c *Canceler) until(deadline time.Time) (ctx context.Context, release func()) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	if !c.setCloser(closer(cancel)) {
		cancel()
	}
	return ctx, func() { c.setCloser(nil); cancel() }
}

// closer adapts a function to [io.Closer].
type closer func()

func (c closer) Close() error { c(); return nil }

// Sleep waits until the given time, or until Cancel is called.
func (c *Canceler) Sleep(until time.Time) {
	ctx, release := c.until(until)
	defer release()
	<-ctx.Done()
}

// End marks the Post as finished: the caller must send nothing more. It releases the callers of
// Wait.
func (c *Canceler) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.done != nil {
		close(c.done)
	}
}

// Ended reports whether End was called.
func (c *Canceler) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Wait returns nil once End has been called, or the error of ctx if ctx ends first.
func (c *Canceler) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.ended {
			close(c.done)
		}
	}
	done := c.done
	c.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
