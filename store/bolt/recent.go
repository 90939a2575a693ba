package bolt

import (
	"sort"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	maxRecent   = 24 << 20    // bytes that are held, about
	recentBytes = 256         // of them, for an event besides its body
	recentFor   = time.Second // what is held for longer makes room for what is new
)

// recent holds events that were just published until their deliveries are claimed for
// the first time, so that what is claimed before long need not be read. If that is more
// than it can hold, it has those that will be claimed sooner.
type recent struct {
	mu    sync.Mutex
	ring  []recentEvent // of ascending numbers, count of them from head on
	head  int
	count int
	bytes int
}

// A recentEvent is not held any more once none of its deliveries is left to be claimed.
type recentEvent struct {
	first, last uint64 // of their numbers
	left        int
	at          time.Time
	event       webhooks.EncodedEvent
}

func (r *recent) at(i int) *recentEvent { return &r.ring[(r.head+i)%len(r.ring)] }

// put holds an event that was published at a time, for so many deliveries: their numbers
// follow each other from first on, and are greater than all before.
func (r *recent) put(event *webhooks.EncodedEvent, first uint64, deliveries int, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := recentBytes + len(event.Body)
	for r.bytes+size > maxRecent {
		if r.count == 0 || at.Sub(r.at(0).at) < recentFor {
			return
		}
		r.drop(r.at(0))
	}
	if r.count == len(r.ring) {
		larger := make([]recentEvent, max(64, min(2*len(r.ring), maxRecent/recentBytes)))
		for i := range r.count {
			larger[i] = *r.at(i)
		}
		r.ring, r.head = larger, 0
	}
	r.count++
	*r.at(r.count - 1) = recentEvent{first, first + uint64(deliveries) - 1, deliveries, at, *event}
	r.bytes += size
}

// take returns the event of a delivery that is claimed, if it is held.
func (r *recent) take(number uint64) (event webhooks.EncodedEvent, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := sort.Search(r.count, func(i int) bool { return r.at(i).last >= number })
	if i == r.count || r.at(i).first > number || r.at(i).left == 0 {
		return event, false
	}
	e := r.at(i)
	event = e.event
	if e.left--; e.left == 0 {
		r.drop(e)
	}
	return event, true
}

// drop holds an event no more. Its place is taken until those before it are dropped.
func (r *recent) drop(e *recentEvent) {
	r.bytes -= len(e.event.Body)
	e.left, e.event = 0, webhooks.EncodedEvent{}
	for r.count > 0 && r.at(0).left == 0 {
		r.head = (r.head + 1) % len(r.ring)
		r.count--
		r.bytes -= recentBytes
	}
}

// forget holds nothing any more of events before a number.
func (r *recent) forget(before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.count > 0 && r.at(0).first < before {
		r.drop(r.at(0))
	}
}
