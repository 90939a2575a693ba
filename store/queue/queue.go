// Package queue schedules owed deliveries for stores that live in one process:
// which are due, in fair turns, and which are leased to whom.
//
// It holds no more of a delivery than its webhook, a number and when it is due;
// the store keeps the rest, and tells the queue of every change after making it
// durable. A crash forgets all leases, which is what frees them.
//
// Times are compared as those of time.Now are: once a delivery is in the queue, a
// clock that is set changes nothing.
package queue

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A Queue holds what each webhook is owed. The zero Queue is empty and ready; it
// is safe for concurrent use.
type Queue struct {
	mu         sync.Mutex
	epoch      time.Time // where time begins
	endpoints  roster[*endpoint]
	accounts   roster[*account]
	rings      [2][standings]ring // with something due, in turn
	turn       Standing           // whose turn is next
	spare      []*line            // to be used again
	probes     probes
	later      agenda // with something due later
	rests      rests
	suspended  line // lanes with something due, of webhooks whose cap was 0 in the last claim of capVersion
	capVersion uint64
	leases     map[uint64]*lease
	ends       int64 // before which no lease runs out
	token      uint64
	waiting    int
	served     uint64
	lapsed     uint64 // leases that ran out
}

// An Owed is a delivery that is owed.
type Owed struct {
	Webhook   string
	Account   string
	Seq       uint64
	Due       time.Time
	Attempts  int // made so far
	Before    int // made before it was last made owed
	Recovered bool
	First     bool     // it comes before all else that its webhook is owed, what was recovered aside
	Standing  Standing // of the webhook, if nothing of it is in the queue yet
}

// An item is an Owed that waits in its lane. Times are milliseconds since
// Queue.epoch.
type item struct {
	seq      uint64
	due      int64
	attempts int32
	before   int32
}

func (a item) sooner(b item) bool { return a.due < b.due || a.due == b.due && a.seq < b.seq }

// at returns a time as it is counted here.
func (q *Queue) at(t time.Time) int64 {
	if q.epoch.IsZero() {
		q.epoch = time.Now()
	}
	return t.Sub(q.epoch).Milliseconds()
}

// Add adds an owed delivery. The pair of webhook and seq must be new.
func (q *Queue) Add(o Owed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.endpoint(o.Webhook, o.Account, o.Standing)
	kind := live
	if o.Recovered {
		kind = recovered
	}
	it := item{o.Seq, q.at(o.Due), int32(o.Attempts), int32(o.Before)}
	if o.First {
		it.due = e.lanes[kind].firstDue(it.due)
	}
	q.put(&e.lanes[kind], it)
}

// AddEach adds a delivery owed to each of an account's webhooks, as it is when it was
// published. Their numbers follow each other, from first on. Their standings are told
// of those of which nothing is in the queue yet.
func (q *Queue) AddEach(ids []string, standings []Standing, account string, first uint64, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, id := range ids {
		q.put(&q.endpoint(id, account, standings[i]).lanes[live], item{seq: first + uint64(i), due: q.at(due)})
	}
}

// endpoint returns that of a webhook of the account, a new one if need be.
func (q *Queue) endpoint(webhook, of string, standing Standing) *endpoint {
	if e := q.endpoints.all[webhook]; e != nil {
		return e
	}
	a := q.accounts.all[of]
	if a == nil {
		a = &account{name: of}
		q.accounts.put(of, a)
	}
	a.endpoints++
	e := newEndpoint(webhook, a, standing)
	e.served = q.served // it waits from now on
	e.rest = q.rests.of(webhook)
	q.endpoints.put(webhook, e)
	return e
}

// release forgets an endpoint that is owed nothing any more. Whether it is paused its
// store says again when it is.
func (q *Queue) release(e *endpoint) {
	if e.leases == 0 && len(e.lanes[live].waiting)+len(e.lanes[recovered].waiting) == 0 {
		q.forget(e)
	}
}

// forget forgets an endpoint without leases, and its account if it was the last one.
func (q *Queue) forget(e *endpoint) {
	if q.endpoints.all[e.webhook] != e {
		return
	}
	e.dropped = true
	q.reschedule(e) // the agenda looks at what waits in its lanes
	for kind := range e.lanes {
		q.waiting -= len(e.lanes[kind].waiting)
		e.lanes[kind].waiting = nil
	}
	q.endpoints.delete(e.webhook)
	if e.account.endpoints--; e.account.endpoints == 0 {
		q.accounts.delete(e.account.name)
	}
}

// put makes it wait in its lane.
func (q *Queue) put(l *lane, it item) {
	if l.dropped {
		return
	}
	q.waiting++
	l.waiting.push(it)
	if l.waiting[0] == it {
		q.schedule(l)
	}
}

// take takes the first item that waits in the lane.
func (q *Queue) take(l *lane) item {
	q.waiting--
	it := l.waiting.pop()
	if l.place >= 0 { // a probe, while it rests
		q.schedule(l)
	}
	return it
}

// schedule puts a lane that is not in a ring where it will be found when its first
// item is due.
func (q *Queue) schedule(l *lane) {
	switch {
	case l.place == inRing && l.dropped:
		q.exit(l)
	case l.place == inRing:
	case l.paused || l.dropped || len(l.waiting) == 0:
		if l.place == suspended {
			q.suspended.remove(l)
		}
		q.later.remove(l)
	case l.place == suspended:
	case l.place == nowhere:
		q.later.add(l)
	default:
		q.later.moved(l)
	}
}

// MakeDue makes an owed delivery the next one of its webhook, due at the given time
// or sooner, and reports whether it was owed and not leased. It is as one that was not
// recovered from then on.
func (q *Queue) MakeDue(webhook string, seq uint64, due time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.edit(webhook, seq, func(l *lane, it item) {
		to := &l.lanes[live]
		it.due = to.firstDue(q.at(due))
		q.put(to, it)
	})
}

// Remove removes an owed delivery, and reports whether it was owed and not leased.
func (q *Queue) Remove(webhook string, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.edit(webhook, seq, func(*lane, item) {})
}

// edit takes out the item, if it waits, and hands it to put. It looks at all that
// the webhook is owed.
func (q *Queue) edit(webhook string, seq uint64, put func(*lane, item)) bool {
	e := q.endpoints.all[webhook]
	if e == nil {
		return false
	}
	for kind := range e.lanes {
		l := &e.lanes[kind]
		if i := slices.IndexFunc(l.waiting, func(it item) bool { return it.seq == seq }); i >= 0 {
			it := l.waiting.remove(i)
			q.waiting--
			q.schedule(l)
			put(l, it)
			q.release(e)
			return true
		}
	}
	return false
}

// Pause keeps a webhook's deliveries from being claimed. Leases go on.
func (q *Queue) Pause(webhook string) { q.setPaused(webhook, true) }

// Resume ends a Pause.
func (q *Queue) Resume(webhook string) { q.setPaused(webhook, false) }

func (q *Queue) setPaused(webhook string, paused bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.endpoints.all[webhook]; e != nil {
		e.paused = paused
		q.reschedule(e)
	}
}

func (q *Queue) reschedule(e *endpoint) {
	for kind := range e.lanes {
		q.schedule(&e.lanes[kind])
	}
}

// Drop removes a webhook with all its deliveries and leases, and returns the numbers of
// the deliveries, in no order.
func (q *Queue) Drop(webhook string) (seqs []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.rests.all, webhook)
	e := q.endpoints.all[webhook]
	if e == nil {
		return nil
	}
	seqs = make([]uint64, 0, e.pending())
	for kind := range e.lanes {
		for _, it := range e.lanes[kind].waiting {
			seqs = append(seqs, it.seq)
		}
	}
	for le := range q.leasesOf(e) {
		seqs = append(seqs, le.item.seq)
		q.end(le.token)
	}
	q.forget(e)
	return seqs
}

// Backlog tells what is owed, see [webhooks.Store].
func (q *Queue) Backlog(now time.Time, webhook string) webhooks.Backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.at(now)
	oldest := int64(math.MaxInt64)
	look := func(e *endpoint) {
		for kind := range e.lanes {
			if l := &e.lanes[kind]; l.ready(t) {
				oldest = min(oldest, l.waiting[0].due)
			}
		}
	}
	var b webhooks.Backlog
	if webhook == "" {
		b.Pending, b.ExpiredLeases = q.waiting+len(q.leases), q.lapsed
		for _, e := range q.endpoints.all {
			look(e)
		}
	} else if e := q.endpoints.all[webhook]; e != nil {
		b.Pending = e.pending()
		look(e)
	}
	if oldest < math.MaxInt64 {
		b.OldestDue = now.Add(time.Duration(oldest-t) * time.Millisecond).UTC().Truncate(time.Millisecond)
	}
	return b
}
