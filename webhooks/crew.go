package webhooks

import "sync/atomic"

// A crew makes attempts, each on a goroutine of its own while it lasts. They are used
// again: TLS needs a large stack, and growing one costs as much as the encryption.
type crew struct {
	fly     func(*flight)
	work    chan *flight // closed when there is no more
	waiting atomic.Int64 // goroutines for work
}

// maxWaiting is how many goroutines wait for work; more of them end.
const maxWaiting = 64

// send begins a flight.
func (c *crew) send(f *flight) {
	select {
	case c.work <- f:
	default:
		go c.serve(f)
	}
}

func (c *crew) serve(f *flight) {
	for more := true; more; {
		c.fly(f)
		if c.waiting.Add(1) > maxWaiting {
			c.waiting.Add(-1)
			return
		}
		f, more = <-c.work
		c.waiting.Add(-1)
	}
}
