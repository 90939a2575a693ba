package outbound

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	several  = 3               // receivers and owners that must fail before this host is to blame
	patience = 2 * time.Second // how long an answer is waited for that shows that it is not

	// failureCounts is how long a failure counts among those of several.
	failureCounts = 5 * time.Minute
)

// A reach judges whether this host can reach the network, by how Posts end. None is made to
// find out, for receivers are strangers to each other: this host is to blame only while the
// receivers that were reached last, of several owners if there are, all fail, and none answers,
// also not on a connection that was kept. A receiver that was never reached is no evidence:
// anyone can have ten accounts with names that nobody answers for.
type reach struct {
	reached atomic.Bool // some receiver was
	doubted atomic.Bool // a Post has failed since the last answer

	mu            sync.Mutex
	owners, hosts latest                         // that were reached, by this process or another
	failing       struct{ owners, hosts latest } // of them, since the last answer
	answered      chan struct{}                  // closed by the next answer, while doubted
	offline       bool                           // this host is to blame, since the last answer
}

// latest are the latest different names of some kind.
type latest [several]named

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

// since returns how many have come since then.
func (l *latest) since(then time.Time) (n int) {
	for _, one := range l {
		if !one.at.IsZero() && !one.at.Before(then) {
			n++
		}
	}
	return n
}

// connected notes a new connection.
func (r *reach) connected(by caller, address string) {
	host, _, _ := net.SplitHostPort(address)
	now := time.Now()
	r.reached.Store(true)
	r.mu.Lock()
	r.owners.add(by.owner, now)
	r.hosts.add(host, now)
	r.mu.Unlock()
	r.answer()
}

// answer notes that a receiver was reached.
func (r *reach) answer() {
	if !r.doubted.Load() { // nearly always: it is read for each response
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubted.Load() {
		r.doubted.Store(false)
		close(r.answered)
	}
}

// fail notes a failure. It returns what the next answer closes, and whether this host is
// known to be to blame.
func (r *reach) fail(by caller, address string) (answered <-chan struct{}, offline bool) {
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

// judge decides whether this host is to blame, if there was no answer since a failure.
func (r *reach) judge(answered <-chan struct{}) (offline bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.doubted.Load() || r.answered != answered {
		return false
	}
	then := time.Now().Add(-failureCounts)
	r.offline = r.offline || r.failing.owners.since(then) >= r.owners.since(time.Time{}) &&
		r.failing.hosts.since(then) >= r.hosts.since(time.Time{})
	return r.offline
}

// isOffline reports whether a Post failed because this host cannot reach the network. It
// waits for what others find out, unless that is known.
func (c *Client) isOffline(cancel *Canceler, s suspicion, by caller, address string) bool {
	answered, offline := c.reach.fail(by, address)
	switch {
	case offline:
		return true
	case s == likelyTheirs && !c.reach.reached.Load():
		return false
	}
	ctx, release := cancel.until(time.Now().Add(patience))
	defer release()
	select {
	case <-answered:
		return false
	case <-ctx.Done():
	}
	return !cancel.Canceled() && c.reach.judge(answered)
}
