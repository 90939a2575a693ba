package webhooks

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	minRespite = time.Second // pauses while this host cannot make connections: they double
	maxRespite = 10 * time.Second
	fewAtATime = 8           // deliveries claimed after each, until one gets a response
	tellAgain  = time.Minute // at the earliest
)

// A respite is a pause of the dispatcher while this host has run out of something that
// attempts need: they would all fail, and none of them by a fault of the receivers. The
// zero respite is none.
type respite struct {
	on atomic.Bool

	mu    sync.Mutex
	pause time.Duration
	until time.Time
	left  int // deliveries that may be claimed then
	told  time.Time
}

// begin notes a failure of this host's. It returns for how long nothing is to be
// claimed, if somebody should be told: once in an outage.
func (r *respite) begin(now time.Time) (pause time.Duration, tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on.Load() {
		r.pause, r.until = 0, time.Time{}
		if tell = r.told.IsZero() || now.Sub(r.told) >= tellAgain; tell {
			r.told = now
		}
	}
	r.on.Store(true)
	if !now.Before(r.until) { // not of those that were under way when it began
		r.pause = min(max(2*r.pause, minRespite), maxRespite)
		r.until, r.left = now.Add(r.pause), fewAtATime
	}
	return r.pause, tell
}

// end notes that an attempt got a response.
func (r *respite) end() { r.on.Store(false) }

// limit returns how many of as many deliveries may be claimed now, and if none, when
// that changes.
func (r *respite) limit(now time.Time, limit int, next time.Time) (int, time.Time) {
	if limit == 0 || !r.on.Load() {
		return limit, next
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 && now.Sub(r.until) >= maxRespite { // of those before nothing is known yet
		r.until, r.left = now, fewAtATime
	}
	switch {
	case now.Before(r.until):
		return 0, r.until
	case r.left == 0:
		return 0, r.until.Add(maxRespite)
	}
	return min(limit, r.left), next
}

// turns returns how many of as many deliveries may go to webhooks that are not fit: where
// few may be claimed half of them, for it is the others that show that the host can make
// connections again.
func (r *respite) turns(limit int) int {
	if r.on.Load() {
		return (limit + 1) / 2
	}
	return limit
}

// claimed notes that so many deliveries were claimed.
func (r *respite) claimed(n int) {
	if r.on.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.left = max(0, r.left-n)
	}
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
