package outbound

import (
	"context"
	"io"
	"sync"
	"time"
)

// A Canceler cuts a Post short, from any goroutine, and tells others when its owner has
// ended. The zero Canceler is ready. It does what a context and a WaitGroup do, for
// less: a Post needs one, and there are many thousands a second.
type Canceler struct {
	mu       sync.Mutex
	canceled bool
	held     io.Closer // what the Post waits for
	ended    bool
	done     chan struct{} // closed once ended; nil: nothing waits for that
}

// Cancel cuts the Post short: nothing more is sent than what is on its way already.
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

// hold replaces what Cancel closes, and reports whether the Post goes on.
func (c *Canceler) hold(what io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = what
	return !c.canceled
}

// until returns a context that ends then, or when Cancel is called.
func (c *Canceler) until(then time.Time) (ctx context.Context, release func()) {
	ctx, cancel := context.WithDeadline(context.Background(), then)
	if !c.hold(closer(cancel)) {
		cancel()
	}
	return ctx, func() { c.hold(nil); cancel() }
}

// A closer is called by Close.
type closer func()

func (c closer) Close() error { c(); return nil }

// Sleep waits until then, or until Cancel is called.
func (c *Canceler) Sleep(until time.Time) {
	ctx, release := c.until(until)
	defer release()
	<-ctx.Done()
}

// End says that nothing more will be sent.
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

// Wait returns once End was called, or with the error of ctx when that ends.
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
