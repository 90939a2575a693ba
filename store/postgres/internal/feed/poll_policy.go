package feed

import (
	"sync"
	"time"
)

// AnnounceInterval is the time between two announcements by a node on which a host publishes in
// transactions.
const AnnounceInterval = time.Second

const (
	backstopInterval = time.Second // between reads by a node that is notified

	// A node that finds at least busyChanges a second polls within busyInterval, every 25 ms on
	// average. At that rate notifications would cost the server more, since each wakes a server
	// process of every node.
	busyChanges  = 20
	busyInterval = 33 * time.Millisecond
)

// A PollPolicy decides how often a node reads the change feed without being notified. A node is in
// one of two states:
//
//   - notified: the node reads when it is notified, and once per second or per PollEvery, whichever
//     is longer, in case a notification was lost.
//   - polling: the node reads at an interval. The interval is PollEvery while the node does not
//     listen, and while transactions of publishing hosts may be open, because no notification
//     follows their commit. It is busyInterval while much is published; then the node's heartbeat
//     also announces to the other nodes that it needs no notifications.
//
// Times are compared by the monotonic clock, so that setting the wall clock changes nothing.
type PollPolicy struct {
	// Trusted is how long other nodes may treat this node as busy after a heartbeat has said so. It
	// must not be changed once the policy is in use.
	Trusted time.Duration

	mu        sync.Mutex
	listeners int // connections that listen

	hostsUntil time.Time // until when hosts are assumed to publish in transactions
	// oldest is the oldest transaction that ran at the last read. All announced host transactions
	// have ended once oldest is at least open.
	oldest, open int64

	found     int       // transactions with changes, since counted
	counted   time.Time // when a heartbeat last asked whether the node is busy
	busy      bool      // the latest result
	busyUntil time.Time // until when other nodes may treat this node as busy
}

// Interval returns the time within which the next read is due.
func (p *PollPolicy) Interval(pollEvery time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	interval := max(pollEvery, backstopInterval)
	if p.listeners == 0 || now.Before(p.hostsUntil) || p.oldest < p.open {
		interval = pollEvery
	}
	if now.Before(p.busyUntil) {
		interval = min(interval, busyInterval)
	}
	return interval
}

// AddListener adds n, which may be -1, to the connections that listen.
func (p *PollPolicy) AddListener(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners += n
}

// HostPublishes records that a host publishes in transactions.
func (p *PollPolicy) HostPublishes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hostsUntil = time.Now().Add(2 * AnnounceInterval)
}

// Record records the result of a read that began at began: the number of transactions with changes
// and the snapshot.
func (p *PollPolicy) Record(began time.Time, transactions int, seen *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.oldest = seen.Min; began.Before(p.hostsUntil) {
		p.open = seen.Max
	}
	p.found += transactions
}

// IsBusy reports whether the node polls so often that it needs no notifications. The next heartbeat
// announces the result, which is recomputed once a second.
func (p *PollPolicy) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(p.counted)
	if elapsed < time.Second {
		return p.busy
	}
	p.busy = float64(p.found) >= busyChanges*elapsed.Seconds()
	if p.busy {
		p.busyUntil = now.Add(p.Trusted)
	}
	p.found, p.counted = 0, now
	return p.busy
}
