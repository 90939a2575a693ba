// Package hostcode calls functions of the host, such as hooks, that may panic, end their
// goroutine or never return.
package hostcode

import (
	"context"
	"log/slog"
	"time"
)

// Grace is how long to wait for the host's functions beyond the drain timeout: until then
// there may be something to tell them.
const Grace = time.Second

// Go calls a function on a goroutine of its own. Once it is over, the channel gets
// whether it returned.
func Go(call func()) <-chan bool {
	over := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { over <- returned }()
		call()
		returned = true
	}()
	return over
}

// Drained returns a context that ends once ctx has ended and the drain timeout and Grace
// have passed. Cancel frees what it takes.
func Drained(ctx context.Context, timeout time.Duration) (over context.Context, cancel context.CancelFunc) {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(max(timeout, 0)+Grace, end)
		context.AfterFunc(over, func() { late.Stop() })
	})
	return over, func() { stop(); end() }
}

// A Call is a call of a hook that is to be made.
type Call struct {
	Name string
	Func func()
}

// A Caller calls hooks, one at a time.
type Caller struct {
	logger  *slog.Logger
	calling chan struct{} // full while a hook is called
}

// NewCaller returns a Caller that logs which hooks do not return.
func NewCaller(logger *slog.Logger) *Caller {
	return &Caller{logger: logger, calling: make(chan struct{}, 1)}
}

// Call makes calls, one after the other, until over ends. They are made on another
// goroutine: one that never returns, or ends its goroutine, keeps only itself.
func (c *Caller) Call(over context.Context, calls []Call) {
	for len(calls) > 0 {
		select {
		case c.calling <- struct{}{}:
		case <-over.Done():
			return // the one before has not returned, and was logged
		}
		made := 0
		returned := Go(func() {
			defer func() { <-c.calling }()
			for ; made < len(calls) && over.Err() == nil; made++ {
				c.callOne(calls[made])
			}
		})
		select {
		case ok := <-returned:
			if !ok {
				c.logger.Error("storageapi: a webhook hook ended its goroutine", "hook", calls[made].Name)
				made++
			}
			calls = calls[made:]
		case <-over.Done():
			c.logger.Error("storageapi: a webhook hook does not return; Run does")
			return
		}
	}
}

// callOne makes a call, which may panic.
func (c *Caller) callOne(call Call) {
	defer func() {
		if p := recover(); p != nil {
			c.logger.Error("storageapi: a webhook hook panicked", "hook", call.Name) // its value could hold anything
		}
	}()
	call.Func()
}
