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
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A Queue holds what each webhook is owed. The zero Queue is empty and ready; it
// is safe for concurrent use.
type Queue struct {
	mu        sync.Mutex
	epoch     time.Time // where time begins
	endpoints map[string]*endpoint
	accounts  map[string]*account
	rings     [2]ring // by kind: with something due, in turn
	later     agenda  // with something due later
	leases    map[uint64]*lease
	ends      int64 // before which no lease runs out
	token     uint64
	waiting   int
	served    uint64
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

type lease struct {
	lane  *lane
	item  item
	token uint64
	until int64
	held  bool // being settled: does not run out

	landed bool // does not count in leased
}

// A Claimed is a leased delivery.
type Claimed struct {
	Webhook string
	Seq     uint64
	Attempt int // the number of the attempt to make
	Before  int
	Token   uint64
}

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
	e := q.endpoints[o.Webhook]
	if e == nil {
		e = q.open(o.Webhook, o.Account)
	}
	kind := live
	if o.Recovered {
		kind = recovered
	}
	q.put(&e.lanes[kind], item{o.Seq, q.at(o.Due), int32(o.Attempts), int32(o.Before)})
}

// open returns a new endpoint.
func (q *Queue) open(webhook, of string) *endpoint {
	if q.endpoints == nil {
		q.endpoints, q.accounts = make(map[string]*endpoint), make(map[string]*account)
	}
	a := q.accounts[of]
	if a == nil {
		a = &account{}
		q.accounts[of] = a
	}
	e := newEndpoint(webhook, a, &q.rings)
	q.endpoints[webhook] = e
	return e
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
	return l.waiting.pop()
}

// schedule puts a lane that is not in a ring where it will be found when its first
// item is due.
func (q *Queue) schedule(l *lane) {
	switch {
	case l.place == inRing:
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

// Claim leases due deliveries as [webhooks.Store] has it. wait is in how long
// another Claim could find more if nothing else happens: at most an hour.
func (q *Queue) Claim(now time.Time, claim webhooks.Claim) (claimed []Claimed, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.at(now)
	q.expire(t)
	q.wake(t)
	for _, token := range claim.Landed {
		if le := q.leases[token]; le != nil {
			le.land()
		}
	}

	if claim.PerWebhook == 0 {
		claimed = q.claimCapped(t, &claim)
	} else {
		for kind := range q.rings {
			claimed = q.claimTurns(claimed, &q.rings[kind], t, &claim)
		}
	}
	if len(claimed) == claim.Limit {
		return claimed, 0
	}
	next := t + maxWait.Milliseconds()
	if len(q.later) > 0 {
		next = min(next, q.later[0].due())
	}
	if claim.PerWebhook == 0 { // whose lanes stay in line when nothing of them is due any more
		for webhook := range claim.Caps {
			if e := q.endpoints[webhook]; e != nil {
				next = min(next, e.after(t))
			}
		}
	}
	if len(q.leases) > 0 {
		next = min(next, q.ends)
	}
	return claimed, max(0, time.Duration(next-t)*time.Millisecond)
}

// claimTurns claims from the lanes of a ring, in turn.
func (q *Queue) claimTurns(claimed []Claimed, r *ring, t int64, claim *webhooks.Claim) []Claimed {
	var full []*lane // in line, but not for this claim
	for len(claimed) < claim.Limit && len(*r) > 0 {
		l := r.pop()
		switch {
		case !l.has(t):
			l.place = nowhere
			q.schedule(l)
		case l.full(claim):
			full = append(full, l)
		default:
			claimed = append(claimed, q.lease(l, t+claim.Lease.Milliseconds()))
			r.push(l)
		}
	}
	*r = append(*r, full...)
	return claimed
}

// claimCapped claims for the webhooks that the claim has caps for, and for no
// others: whoever waits longest for a lease comes first, one a turn.
func (q *Queue) claimCapped(t int64, claim *webhooks.Claim) (claimed []Claimed) {
	var due []*endpoint
	for webhook := range claim.Caps {
		if e := q.endpoints[webhook]; e != nil && e.next(t) != nil {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *endpoint) int { return cmp.Compare(a.served, b.served) })
	for len(due) > 0 {
		turn := due
		due = due[:0]
		for _, e := range turn {
			if l := e.next(t); len(claimed) < claim.Limit && l != nil && !e.full(claim) {
				claimed = append(claimed, q.lease(l, t+claim.Lease.Milliseconds()))
				due = append(due, e)
			}
		}
	}
	return claimed
}

// full reports whether the claim allows no more of the endpoint.
func (e *endpoint) full(claim *webhooks.Claim) bool {
	limit, special := claim.Caps[e.webhook]
	if !special {
		limit = claim.PerWebhook
	}
	return e.leased >= limit || claim.PerAccount > 0 && e.account.leased >= claim.PerAccount
}

// lease leases the first item that waits in l.
func (q *Queue) lease(l *lane, until int64) Claimed {
	if q.token == 0 {
		q.token = rand.Uint64() // no process takes another's token for its own
	}
	q.token++
	le := &lease{lane: l, item: q.take(l), token: q.token, until: until}
	if q.leases == nil {
		q.leases = make(map[uint64]*lease)
	}
	if len(q.leases) == 0 {
		q.ends = until
	}
	q.ends = min(q.ends, until)
	q.leases[le.token] = le
	q.served++
	l.served = q.served
	l.leased++
	l.account.leased++
	return Claimed{l.webhook, le.item.seq, int(le.item.attempts) + 1, int(le.item.before), le.token}
}

// end ends a lease and reports whether there was one.
func (q *Queue) end(token uint64) (*lease, bool) {
	le := q.leases[token]
	if le == nil {
		return nil, false
	}
	delete(q.leases, token)
	le.land()
	return le, true
}

// land makes the lease count no more.
func (le *lease) land() {
	if !le.landed {
		le.landed = true
		le.lane.leased--
		le.lane.account.leased--
	}
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
			q.end(le.token)
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
		l.ring.push(l)
	}
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
	q.end(token)
}

// Retry ends the lease; its delivery is due again at the given time, after that
// many attempts.
func (q *Queue) Retry(token uint64, due time.Time, attempts int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le, ok := q.end(token); ok {
		le.item.due, le.item.attempts = q.at(due), int32(attempts)
		q.put(le.lane, le.item)
	}
}

// Free ends the lease as if it had never been.
func (q *Queue) Free(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le, ok := q.end(token); ok {
		q.put(le.lane, le.item)
	}
}

// Expedite makes an owed delivery due at the given time, and reports whether it
// was owed and not leased.
func (q *Queue) Expedite(webhook string, seq uint64, due time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.edit(webhook, seq, func(l *lane, it item) {
		it.due = q.at(due)
		q.put(l, it)
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
	e := q.endpoints[webhook]
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
			return true
		}
	}
	return false
}

// Leased reports whether the delivery is leased.
func (q *Queue) Leased(webhook string, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, le := range q.leases {
		if le.item.seq == seq && le.lane.webhook == webhook {
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
	if e := q.endpoints[webhook]; e != nil {
		e.paused = paused
		q.reschedule(e)
	}
}

func (q *Queue) reschedule(e *endpoint) {
	for kind := range e.lanes {
		q.schedule(&e.lanes[kind])
	}
}

// Drop removes a webhook with all its deliveries and leases.
func (q *Queue) Drop(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.endpoints[webhook]
	if e == nil {
		return
	}
	e.dropped = true
	q.reschedule(e) // the agenda looks at what waits in its lanes
	for kind := range e.lanes {
		q.waiting -= len(e.lanes[kind].waiting)
		e.lanes[kind].waiting = nil
	}
	for token, le := range q.leases {
		if le.lane.endpoint == e {
			q.end(token)
		}
	}
	delete(q.endpoints, webhook)
}

// Owed returns the numbers of all deliveries of a webhook, leased ones
// included, in no order.
func (q *Queue) Owed(webhook string) (seqs []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.endpoints[webhook]
	if e == nil {
		return nil
	}
	for kind := range e.lanes {
		for _, it := range e.lanes[kind].waiting {
			seqs = append(seqs, it.seq)
		}
	}
	for _, le := range q.leases {
		if le.lane.endpoint == e {
			seqs = append(seqs, le.item.seq)
		}
	}
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
			if l := &e.lanes[kind]; l.has(t) {
				oldest = min(oldest, l.due())
			}
		}
	}
	var b webhooks.Backlog
	if webhook == "" {
		b.Pending = q.waiting + len(q.leases)
		for _, e := range q.endpoints {
			look(e)
		}
	} else if e := q.endpoints[webhook]; e != nil {
		b.Pending = len(e.lanes[live].waiting) + len(e.lanes[recovered].waiting)
		for _, le := range q.leases {
			if le.lane.endpoint == e {
				b.Pending++
			}
		}
		look(e)
	}
	if oldest < math.MaxInt64 {
		b.OldestDue = now.Add(time.Duration(oldest-t) * time.Millisecond).UTC().Truncate(time.Millisecond)
	}
	return b
}
