package outbound

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	witnesses     = 3               // receivers and owners that must fail before this host is blamed
	answerTimeout = 2 * time.Second // wait for an answer that exonerates this host
	failureWindow = 5 * time.Minute // a failure is evidence for this long
)

// A reach decides from the outcomes of Posts whether this host can reach the network. It makes no
// requests itself. It blames this host only if all of the receivers reached most recently fail, and
// no receiver answers on a new or an idle connection. If the receivers reached most recently have
// several owners, the failing receivers must also have several owners. A receiver that was never
// reached is no evidence, because anyone can have ten accounts with names that do not resolve.
type reach struct {
	reached atomic.Bool // this process has reached a receiver
	doubted atomic.Bool // a Post has failed since the last answer

	mu            sync.Mutex
	owners, hosts latest                         // most recently reached, by this process or another
	failing       struct{ owners, hosts latest } // the subset that failed since the last answer
	answered      chan struct{}                  // closed by the next answer; used while doubted
	offline       bool                           // this host is blamed until the next answer
}

// latest holds the most recent distinct names, newest first.
type latest [witnesses]named

type named struct {
	name string
	at   time.Time
}

func (l *latest) add(name string, at time.Time) {
	for i := range l {
		if l[i].name == name || i == len(l)-1 {
			copy(l[1:i+1], l[:i])
			break
		}
	}
	l[0].name, l[0].at = name, at
}

func (l *latest) has(name string) bool {
	return slices.ContainsFunc(l[:], func(one named) bool { return one.name == name && !one.at.IsZero() })
}

// countSince returns the number of names that were added at or after start.
func (l *latest) countSince(start time.Time) (n int) {
	for _, one := range l {
		if !one.at.IsZero() && !one.at.Before(start) {
			n++
		}
	}
	return n
}

// connected records a new connection.
func (r *reach) connected(by Caller, address string) {
	host, _, _ := net.SplitHostPort(address)
	now := time.Now()
	r.reached.Store(true)
	r.mu.Lock()
	r.owners.add(by.owner, now)
	r.hosts.add(host, now)
	r.mu.Unlock()
	r.answer()
}

// answer records that a receiver was reached. It runs for each response, but rarely takes the lock.
func (r *reach) answer() {
	if !r.doubted.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubted.Load() {
		r.doubted.Store(false)
		close(r.answered)
	}
}

// fail records a failure. It returns a channel that the next answer will close, and whether this
// host is already known to be offline.
func (r *reach) fail(by Caller, address string) (answered <-chan struct{}, offline bool) {
	host, _, _ := net.SplitHostPort(address)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.doubted.Load() {
		r.failing.owners, r.failing.hosts = latest{}, latest{}
		r.answered, r.offline = make(chan struct{}), false
		r.doubted.Store(true)
	}
	if by.standing == Proven || r.hosts.has(host) {
		for _, l := range []*latest{&r.owners, &r.failing.owners} {
			l.add(by.owner, now)
		}
		for _, l := range []*latest{&r.hosts, &r.failing.hosts} {
			l.add(host, now)
		}
	}
	return r.answered, r.offline
}

// judge decides whether this host is offline. It returns false if a receiver has answered since
// the failure for which fail returned the channel.
func (r *reach) judge(answered <-chan struct{}) (offline bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.doubted.Load() || r.answered != answered {
		return false
	}
	start := time.Now().Add(-failureWindow)
	r.offline = r.offline || r.failing.owners.countSince(start) >= r.owners.countSince(time.Time{}) &&
		r.failing.hosts.countSince(start) >= r.hosts.countSince(time.Time{})
	return r.offline
}

// isOffline reports whether a Post failed because this host cannot reach the network. Unless
// that is known already, it waits up to answerTimeout for another Post to reach a receiver.
func (c *Client) isOffline(cancel *Canceler, s suspicion, by Caller, address string) bool {
	answered, offline := c.reach.fail(by, address)
	switch {
	case offline:
		return true
	case s == likelyReceiver && !c.reach.reached.Load():
		return false
	}
	ctx, release := cancel.until(time.Now().Add(answerTimeout))
	defer release()
	select {
	case <-answered:
		return false
	case <-ctx.Done():
	}
	return !cancel.Canceled() && c.reach.judge(answered)
}
