package bolt

import (
	"sort"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	maxPublished = 24 << 20    // bytes that are held, about
	eventBytes   = 256         // of them, for an event besides its body
	publishedFor = time.Second // events that are held for longer make room for new ones
)

// A publishCache holds events that were just published until their deliveries are claimed for
// the first time, so that most claims read no event. If there are more than it can hold,
// it has the older ones, which will be claimed sooner.
type publishCache struct {
	mu    sync.Mutex
	ring  []publishedEvent // of ascending numbers, count of them from head on
	head  int
	count int
	bytes int
}

// A publishedEvent is not held any more once none of its deliveries is left to be claimed.
type publishedEvent struct {
	first, last uint64 // of their numbers
	left        int
	at          time.Time
	event       webhooks.EncodedEvent
}

func (r *publishCache) at(i int) *publishedEvent { return &r.ring[(r.head+i)%len(r.ring)] }

// put holds an event that was published at a time. The numbers of its deliveries follow
// each other from first on, and are greater than all before.
func (r *publishCache) put(event *webhooks.EncodedEvent, first uint64, deliveries int, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := eventBytes + len(event.Body)
	for r.bytes+size > maxPublished {
		if r.count == 0 || at.Sub(r.at(0).at) < publishedFor {
			return
		}
		r.drop(r.at(0))
	}
	if r.count == len(r.ring) {
		larger := make([]publishedEvent, max(64, min(2*len(r.ring), maxPublished/eventBytes)))
		for i := range r.count {
			larger[i] = *r.at(i)
		}
		r.ring, r.head = larger, 0
	}
	r.count++
	*r.at(r.count - 1) = publishedEvent{first, first + uint64(deliveries) - 1, deliveries, at, *event}
	r.bytes += size
}

// take returns the event of a delivery that is claimed, if it is held.
func (r *publishCache) take(number uint64) (event webhooks.EncodedEvent, held bool) {
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

// drop ends holding an event. Its slot is free once those before it are dropped.
func (r *publishCache) drop(e *publishedEvent) {
	r.bytes -= len(e.event.Body)
	e.left, e.event = 0, webhooks.EncodedEvent{}
	for r.count > 0 && r.at(0).left == 0 {
		r.head = (r.head + 1) % len(r.ring)
		r.count--
		r.bytes -= eventBytes
	}
}

// forget holds nothing any more of events before a number.
func (r *publishCache) forget(before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.count > 0 && r.at(0).first < before {
		r.drop(r.at(0))
	}
}

// forgetAccount holds nothing any more of an account.
func (r *publishCache) forgetAccount(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.count - 1; i >= 0; i-- { // from the last: dropping the first moves the others
		if e := r.at(i); e.left > 0 && e.event.Account == account {
			r.drop(e)
		}
	}
}
