package webhooks

import (
	"context"
	"time"
)

// lastWords is how long Run waits for the host's code, such as hooks, beyond the drain
// timeout: until then there may be attempts to tell of.
const lastWords = time.Second

// apart calls the host's code on a goroutine of its own: it may not return, and may end
// its goroutine. What it returns gets whether the call returned, once it is over.
func apart(call func()) <-chan bool {
	over := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { over <- returned }()
		call()
		returned = true
	}()
	return over
}

// drained returns a context that ends when Run has to return, whatever of the host's
// code has not, after ctx has ended. Cancel frees what it takes.
func (c *Config) drained(ctx context.Context) (over context.Context, cancel context.CancelFunc) {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(max(c.DrainTimeout, 0)+lastWords, end)
		context.AfterFunc(over, func() { late.Stop() })
	})
	return over, func() { stop(); end() }
}
