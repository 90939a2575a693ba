package scheduler

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	minOutagePause = time.Second // first pause between trials; the pauses double
	maxOutagePause = 10 * time.Second
	trialSize      = 8           // attempts after each pause, until one gets a response
	reportInterval = time.Minute // minimum time between two reported outages
)

// An Outage is a circuit breaker for this host. If the host lacks a resource that attempts need,
// all attempts would fail although no receiver is to blame. The zero Outage is closed. Its
// methods are safe for concurrent use.
type Outage struct {
	on atomic.Bool

	mu    sync.Mutex
	pause time.Duration
	until time.Time
	left  int // attempts of the trial that may still begin

	reported time.Time
}

// Begin records an attempt that failed because of this host. It returns how long to hold off new
// attempts, and whether the caller should report the outage: at most once per outage, and at most
// once per reportInterval.
func (o *Outage) Begin(now time.Time) (pause time.Duration, report bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on.Load() {
		o.pause, o.until = 0, time.Time{}
		if report = o.reported.IsZero() || now.Sub(o.reported) >= reportInterval; report {
			o.reported = now
		}
	}
	o.on.Store(true)
	if !now.Before(o.until) { // ignore failures of attempts that began before the pause
		o.pause = min(max(2*o.pause, minOutagePause), maxOutagePause)
		o.until, o.left = now.Add(o.pause), trialSize
	}
	return o.pause, report
}

// End records that an attempt got a response.
func (o *Outage) End() {
	if o.on.Load() { // avoid a write for each attempt
		o.on.Store(false)
	}
}

// Limit returns how many attempts may begin now, at most limit. If this is 0 because of the outage,
// the second result is the time at which attempts may begin again, otherwise it is next.
func (o *Outage) Limit(now time.Time, limit int, next time.Time) (int, time.Time) {
	if limit == 0 || !o.on.Load() {
		return limit, next
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left == 0 && now.Sub(o.until) >= maxOutagePause { // no attempt of the last trial has reported a result
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

// Turns returns how many of limit attempts may go to unhealthy webhooks. In an outage it is half,
// since attempts to healthy webhooks show best whether the host can connect again.
func (o *Outage) Turns(limit int) int {
	if o.on.Load() {
		return (limit + 1) / 2
	}
	return limit
}

// Began records that attempts began.
func (o *Outage) Began(attempts int) {
	if o.on.Load() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.left = max(0, o.left-attempts)
	}
}
