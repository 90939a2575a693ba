package eventlog

import (
	"sort"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

const (
	maxPublished = 24 << 20    // total bytes, approximately
	eventBytes   = 256         // bytes of an event without its body
	publishedFor = time.Second // after this time, events make room for new ones
)

// A publishCache holds newly published events until their deliveries are first loaded, so that most
// loads do not read the file. If it is full, it keeps the older events, which will be loaded
// sooner.
type publishCache struct {
	mu    sync.Mutex
	ring  []publishedEvent // a ring buffer: count events from index head on, by ascending numbers
	head  int
	count int
	bytes int
}

// A publishedEvent is held until all its deliveries have been taken. A delivery that has not been
// taken has had no attempt, and is pending.
type publishedEvent struct {
	first, last uint64 // numbers of its deliveries
	left        int    // number of deliveries that have not been taken
	taken       uint64 // bit i is set if delivery i is taken, for the first 64
	more        []uint64
	at          time.Time
	to          []string // webhook IDs, by number of the delivery
	event       driver.EncodedEvent
}

func (r *publishCache) at(i int) *publishedEvent { return &r.ring[(r.head+i)%len(r.ring)] }

// put adds an event. at is its publication time. Its deliveries have consecutive numbers, beginning
// with first, which must be greater than all earlier numbers.
func (r *publishCache) put(event *driver.EncodedEvent, first uint64, to []string, at time.Time) {
	deliveries := len(to)
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
	e := publishedEvent{first: first, last: first + uint64(deliveries) - 1, left: deliveries, at: at, to: to, event: *event}
	if deliveries > 64 {
		e.more = make([]uint64, (deliveries-1)/64)
	}
	*r.at(r.count - 1) = e
	r.bytes += size
}

// take returns the event of a delivery and its publication time, if the cache holds the event and
// the delivery has not been taken before. Such a delivery is pending.
func (r *publishCache) take(ref driver.DeliveryRef) (event driver.EncodedEvent, at time.Time, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(ref.Number)
	if e == nil || e.to[ref.Number-e.first] != ref.WebhookID {
		return event, at, false
	}
	bits, bit := &e.taken, ref.Number-e.first
	if bit >= 64 {
		bits = &e.more[bit/64-1]
	}
	if *bits&(1<<(bit%64)) != 0 {
		return event, at, false
	}
	*bits |= 1 << (bit % 64)
	event, at = e.event, e.at
	if e.left--; e.left == 0 {
		r.drop(e)
	}
	return event, at, true
}

// find returns the event to which the delivery belongs, or nil if the cache does not hold it. r.mu
// must be held.
func (r *publishCache) find(number uint64) *publishedEvent {
	i := sort.Search(r.count, func(i int) bool { return r.at(i).last >= number })
	if i == r.count || r.at(i).first > number || r.at(i).left == 0 {
		return nil
	}
	return r.at(i)
}

// settle marks the settled deliveries as taken, since they have had an attempt.
func (r *publishCache) settle(results []driver.AttemptResult) {
	for i := range results {
		r.take(results[i].DeliveryRef)
	}
}

// drop releases an event. Its slot becomes free when all earlier events are dropped, too.
func (r *publishCache) drop(e *publishedEvent) {
	r.bytes -= len(e.event.Body)
	e.left, e.more, e.to, e.event = 0, nil, nil, driver.EncodedEvent{}
	for r.count > 0 && r.at(0).left == 0 {
		r.head = (r.head + 1) % len(r.ring)
		r.count--
		r.bytes -= eventBytes
	}
}

// forget drops all events with numbers below the given number.
func (r *publishCache) forget(before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.count > 0 && r.at(0).first < before {
		r.drop(r.at(0))
	}
}

// forgetAccount drops the events of an account.
func (r *publishCache) forgetAccount(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.count - 1; i >= 0; i-- { // backward, because dropping the first moves the others
		if e := r.at(i); e.left > 0 && e.event.Account == account {
			r.drop(e)
		}
	}
}
