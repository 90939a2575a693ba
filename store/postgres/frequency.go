package postgres

import (
	"sync"
	"time"
)

const (
	lookSeldom = time.Second // between the looks of a node that is notified
	tellEvery  = time.Second // that a host publishes in transactions

	// A node polls when notifications would wake 5,000 backends a second, about a tenth of a core, and it
	// finds 5 changes a second itself. It looks so often that each look finds two changes.
	pollFromWakes = 5000
	pollFromFound = 5
	pollMin       = 8 * time.Millisecond
	pollMax       = 64 * time.Millisecond
)

// A frequency is how often a node looks. A node that is notified looks seldom, in case a notification was
// lost. It looks as often as PollEvery says while it does not listen, and while transactions of hosts may
// be open that have published: no notification tells of their commits. And it polls, very often, when
// notifications would cost the server more than looks, since each wakes a backend of every node.
// Times are compared by the monotonic clock: a wall clock that is set changes nothing.
type frequency struct {
	mu      sync.Mutex
	listens int       // connections that listen
	opened  time.Time // until when hosts publish in transactions, as was heard

	// The oldest transaction that ran at the last look. All that published and were heard of have ended
	// once it is not before open.
	oldest, open int64

	own, found int       // changes by this node since the last look, and by others since the last heartbeat
	wakes      float64   // pollFromWakes
	counted    time.Time // when that heartbeat was
	polling    bool      // as that heartbeat said
	pollEvery  time.Duration
	pollUntil  time.Time // when all others have read that the node does not poll any more
}

// every returns how long it may be until the next look, with this PollEvery.
func (f *frequency) every(poll time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	every, now := max(poll, lookSeldom), time.Now()
	if f.listens == 0 || now.Before(f.opened) || f.oldest < f.open {
		every = poll
	}
	if now.Before(f.pollUntil) {
		every = min(every, f.pollEvery)
	}
	return every
}

// listen notes that one connection more listens, or one less: -1.
func (f *frequency) listen(more int) {
	f.mu.Lock()
	f.listens += more
	f.mu.Unlock()
}

// hostPublishes notes that a host publishes in transactions, until it is told again.
func (f *frequency) hostPublishes() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = time.Now().Add(2 * tellEvery)
}

// changed notes a change by this node, in a shard of its own.
func (f *frequency) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own++
}

// looked notes what a look that began then has found.
func (f *frequency) looked(began time.Time, list []changeRow, seen *horizon) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.oldest = seen.min; began.Before(f.opened) {
		f.open = seen.max
	}
	found, last := 0, int64(0)
	for i := range list {
		if list[i].added != last {
			found, last = found+1, list[i].added
		}
	}
	f.found += max(0, found-f.own)
	f.own = 0
}

// polls decides with each heartbeat whether the node polls, so that others need not notify it. It is told
// how many nodes there are.
func (f *frequency) polls(nodes int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.counted) < nodeLasts/6 {
		return f.polling
	}
	rate := float64(f.found) / now.Sub(f.counted).Seconds()
	least := max(pollFromFound, f.wakes/float64(nodes*nodes)) // each notification would wake all nodes
	if f.polling {
		least /= 2
	}
	f.found, f.counted, f.polling = 0, now, nodes > 1 && rate >= least
	if f.polling {
		f.pollEvery = min(max(time.Duration(2*float64(time.Second)/rate), pollMin), pollMax)
		f.pollUntil = now.Add(nodeLasts)
	}
	return f.polling
}
