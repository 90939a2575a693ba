// Package hostcode calls functions of the host that may call [runtime.Goexit] or never return.
package hostcode

import (
	"context"
	"time"
)

// Grace is how long the host's functions may continue to run after the drain timeout.
const Grace = time.Second

// Go calls a function in a new goroutine. When the goroutine ends, the channel receives true if
// the function returned, and false if it called [runtime.Goexit].
func Go(call func()) <-chan bool {
	done := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { done <- returned }()
		call()
		returned = true
	}()
	return done
}

// Drained returns a context that ends when the drain timeout and Grace have passed after the end of
// ctx. Call cancel to release its resources.
func Drained(ctx context.Context, timeout time.Duration) (drained context.Context, cancel context.CancelFunc) {
	drained, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(max(timeout, 0)+Grace, end)
		context.AfterFunc(drained, func() { timer.Stop() })
	})
	return drained, func() { stop(); end() }
}
