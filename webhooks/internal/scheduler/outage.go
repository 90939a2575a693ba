package scheduler

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	minOutagePause = time.Second // while this host cannot make connections: the pauses double
	maxOutagePause = 10 * time.Second
	trialSize      = 8           // attempts after each pause, until one gets a response
	tellAgain      = time.Minute // at the earliest
)

// An Outage is a circuit breaker for this host: while it has run out of something that
// attempts need, they would all fail, and none of them by a fault of the receivers. The
// zero Outage is none. Its methods are safe for concurrent use.
type Outage struct {
	on atomic.Bool

	mu    sync.Mutex
	pause time.Duration
	until time.Time
	left  int // attempts of the trial that may begin
	told  time.Time
}

// Begin notes an attempt that failed by a fault of this host. It returns for how long no
// attempts begin, and whether to tell someone: once in an outage.
func (o *Outage) Begin(now time.Time) (pause time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on.Load() {
		o.pause, o.until = 0, time.Time{}
		if tell = o.told.IsZero() || now.Sub(o.told) >= tellAgain; tell {
			o.told = now
		}
	}
	o.on.Store(true)
	if !now.Before(o.until) { // not by those that were in flight when it began
		o.pause = min(max(2*o.pause, minOutagePause), maxOutagePause)
		o.until, o.left = now.Add(o.pause), trialSize
	}
	return o.pause, tell
}

// End notes that an attempt got a response.
func (o *Outage) End() {
	if o.on.Load() { // seldom: it is read for each attempt
		o.on.Store(false)
	}
}

// Limit returns how many of limit attempts may begin now; if none, when that changes, and
// next otherwise.
func (o *Outage) Limit(now time.Time, limit int, next time.Time) (int, time.Time) {
	if limit == 0 || !o.on.Load() {
		return limit, next
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left == 0 && now.Sub(o.until) >= maxOutagePause { // of those before nothing is known yet
		o.until, o.left = now, trialSize
	}
	switch {
	case now.Before(o.until):
		return 0, o.until
	case o.left == 0:
		return 0, o.until.Add(maxOutagePause)
	}
	return min(limit, o.left), next
}

// Turns returns how many of limit attempts may be to webhooks that are not healthy: half
// of a trial, for it is the others that show that the host can make connections again.
func (o *Outage) Turns(limit int) int {
	if o.on.Load() {
		return (limit + 1) / 2
	}
	return limit
}

// Began notes that attempts began.
func (o *Outage) Began(attempts int) {
	if o.on.Load() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.left = max(0, o.left-attempts)
	}
}
