// Package hostcode calls functions of the host that may end their goroutine or never return.
package hostcode

import (
	"context"
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
