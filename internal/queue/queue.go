// Package queue schedules owed deliveries for stores that live in one process:
// which are due, in fair turns, and which are leased to whom.
//
// It holds no more of a delivery than its webhook, a number and when it is due;
// the store keeps the rest, and tells the queue of every change after making it
// durable. A crash forgets all leases, which is what frees them.
package queue

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// A Queue holds one lane per webhook. The zero Queue is empty and ready; it is
// safe for concurrent use.
type Queue struct {
	mu     sync.Mutex
	lanes  map[string]*lane
	ready  []*lane // with something due, in turn
	later  agenda  // with something due later
	leases map[uint64]*lease
	ends   int64 // Unix milliseconds before which no lease runs out
	token  uint64
}

// A lane holds what one webhook is owed.
type lane struct {
	webhook string
	waiting heap[item]
	leased  map[uint64]*lease // by token
	place   int               // in Queue.later, or one of the below
	paused  bool
	dropped bool
}

const (
	nowhere = -1
	inReady = -2
)

// An item is one owed delivery.
type item struct {
	seq      uint64
	due      int64 // Unix milliseconds
	attempts int32 // made so far
}

func (a item) before(b item) bool { return a.due < b.due || a.due == b.due && a.seq < b.seq }

type lease struct {
	lane  *lane
	item  item
	token uint64
	until int64
	held  bool // being settled: does not run out
}

// A Claimed is a leased delivery.
type Claimed struct {
	Webhook string
	Seq     uint64
	Attempt int // the number of the attempt to make
	Token   uint64
}

// Add adds an owed delivery. The pair of webhook and seq must be new.
func (q *Queue) Add(webhook string, seq uint64, due time.Time, attempts int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[webhook]
	if l == nil {
		l = &lane{webhook: webhook, leased: make(map[uint64]*lease), place: nowhere}
		if q.lanes == nil {
			q.lanes = make(map[string]*lane)
		}
		q.lanes[webhook] = l
	}
	q.put(l, item{seq, due.UnixMilli(), int32(attempts)})
}

// put makes it wait in its lane.
func (q *Queue) put(l *lane, it item) {
	l.waiting.push(it)
	if l.waiting[0] == it {
		q.schedule(l)
	}
}

// schedule puts a lane that is not in line where it will be found when its first
// item is due.
func (q *Queue) schedule(l *lane) {
	switch {
	case l.place == inReady:
	case l.paused || l.dropped || len(l.waiting) == 0:
		q.later.remove(l)
	case l.place == nowhere:
		q.later.add(l)
	default:
		q.later.moved(l)
	}
}

// maxWait is the longest that a Claim may tell its caller to wait.
const maxWait = time.Hour

// Claim leases up to limit due deliveries until now + duration, so that no lane has
// more than perLane leased. Lanes take turns. wait is in how long another Claim
// could find more if nothing else happens: at most an hour.
func (q *Queue) Claim(now time.Time, limit, perLane int, duration time.Duration) (claimed []Claimed, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := now.UnixMilli()
	q.expire(t)
	q.wake(t)

	var capped []*lane // in line, but not for this Claim
	for len(claimed) < limit && len(q.ready) > 0 {
		l := q.ready[0]
		q.ready = q.ready[1:]
		switch {
		case l.paused || l.dropped || len(l.waiting) == 0 || l.waiting[0].due > t:
			l.place = nowhere
			q.schedule(l)
		case len(l.leased) >= perLane:
			capped = append(capped, l)
		default:
			claimed = append(claimed, q.lease(l, now.Add(duration).UnixMilli()))
			q.ready = append(q.ready, l)
		}
	}
	q.ready = append(q.ready, capped...)
	if len(claimed) == limit {
		return claimed, 0
	}
	next := now.Add(maxWait).UnixMilli()
	if len(q.later) > 0 {
		next = min(next, q.later[0].due())
	}
	if len(q.leases) > 0 {
		next = min(next, q.ends)
	}
	return claimed, max(0, time.Duration(next-t)*time.Millisecond)
}

// lease leases the first item that waits in l.
func (q *Queue) lease(l *lane, until int64) Claimed {
	if q.token == 0 {
		q.token = rand.Uint64() // no process takes another's token for its own
	}
	q.token++
	le := &lease{lane: l, item: l.waiting.pop(), token: q.token, until: until}
	if q.leases == nil {
		q.leases = make(map[uint64]*lease)
	}
	if len(q.leases) == 0 {
		q.ends = until
	}
	q.ends = min(q.ends, until)
	q.leases[le.token], l.leased[le.token] = le, le
	return Claimed{l.webhook, le.item.seq, int(le.item.attempts) + 1, le.token}
}

// expire makes what was leased until t or before claimable again; the attempt
// that was going to be made counts. It looks at all leases, but only once the
// first of them can have run out, which is long after most have ended.
func (q *Queue) expire(t int64) {
	if t < q.ends {
		return
	}
	q.ends = math.MaxInt64
	for _, le := range q.leases {
		switch {
		case le.held:
		case le.until > t:
			q.ends = min(q.ends, le.until)
		default:
			q.end(le)
			le.item.attempts++
			q.put(le.lane, le.item)
		}
	}
}

// wake puts the lanes whose time has come in line.
func (q *Queue) wake(t int64) {
	for len(q.later) > 0 && q.later[0].due() <= t {
		l := q.later[0]
		q.later.remove(l)
		l.place = inReady
		q.ready = append(q.ready, l)
	}
}

func (q *Queue) end(le *lease) {
	delete(q.leases, le.token)
	delete(le.lane.leased, le.token)
}

// Hold keeps the lease from running out while it is being settled, and tells
// what it is for; ok is false if the token is not that of a lease, or it is held
// already. One of Done, Retry, Free and Unhold must follow.
func (q *Queue) Hold(token uint64) (webhook string, seq uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	le := q.leases[token]
	if le == nil || le.held {
		return "", 0, false
	}
	le.held = true
	return le.lane.webhook, le.item.seq, true
}

// Unhold ends a Hold that came to nothing: the lease goes on as it was, and runs
// out when it would have.
func (q *Queue) Unhold(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le := q.leases[token]; le != nil {
		le.held = false
		q.ends = min(q.ends, le.until)
	}
}

// Done ends the lease and removes its delivery.
func (q *Queue) Done(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le := q.leases[token]; le != nil {
		q.end(le)
	}
}

// Retry ends the lease; its delivery is due again at the given time, after that
// many attempts.
func (q *Queue) Retry(token uint64, due time.Time, attempts int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le := q.leases[token]; le != nil {
		q.end(le)
		q.put(le.lane, item{le.item.seq, due.UnixMilli(), int32(attempts)})
	}
}

// Free ends the lease as if it had never been.
func (q *Queue) Free(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le := q.leases[token]; le != nil {
		q.end(le)
		q.put(le.lane, le.item)
	}
}

// Pause keeps a webhook's deliveries from being claimed. Leases go on.
func (q *Queue) Pause(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[webhook]; l != nil {
		l.paused = true
		q.schedule(l)
	}
}

// Resume ends a Pause.
func (q *Queue) Resume(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[webhook]; l != nil {
		l.paused = false
		q.schedule(l)
	}
}

// Drop removes a webhook with all its deliveries and leases.
func (q *Queue) Drop(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[webhook]
	if l == nil {
		return
	}
	l.dropped, l.waiting = true, nil
	q.schedule(l)
	for token := range l.leased {
		delete(q.leases, token)
	}
	delete(q.lanes, webhook)
}

// Owed returns the numbers of all deliveries of a webhook, leased ones
// included, in no order.
func (q *Queue) Owed(webhook string) []uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[webhook]
	if l == nil {
		return nil
	}
	seqs := make([]uint64, 0, len(l.waiting)+len(l.leased))
	for _, it := range l.waiting {
		seqs = append(seqs, it.seq)
	}
	for _, le := range l.leased {
		seqs = append(seqs, le.item.seq)
	}
	return seqs
}
