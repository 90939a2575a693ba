// Package queue schedules pending deliveries that one process delivers: which are due, in
// fair turns, and which are leased: all those of the store, or of a store that many
// processes share those of the accounts that this one owns. It is for authors of backends;
// packages memory, bolt and postgres are built on it.
//
//	var q queue.Queue
//	q.Add(queue.Pending{Webhook: "wh_1", Account: "acct_1", Seq: 7, Due: now}) // once it is stored
//	claimed, wait := q.Claim(now, claim)                                       // ClaimDeliveries
//	if webhook, seq, ok := q.Hold(token); ok {                                 // SettleDeliveries
//		q.Done(token) // or Retry, Release; Unhold if it could not be stored
//	}
//
// The queue holds no more of a delivery than its webhook, a number that the store gives
// it, when it is due, and how many attempts were made. The store keeps the rest, and
// tells the queue of every change after making it durable; when it is opened it adds all
// that is pending. A crash forgets all leases, which is what frees them.
//
// [Queue.Claim], [Queue.Backlog] and [Queue.LongestWait] answer as the contract of [webhooks.Queue] has it.
// Pause, Resume, SetStanding, Rest, EndRest, Probe and Drop follow what happens to a
// webhook: it is turned off or on, its health changes, its receiver is to be left alone
// or tried, it is deleted.
//
// [Over] puts a queue above a store that implements [webhooks.Deliveries], and answers claims
// and settlements for it.
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

// A Queue holds the pending deliveries of each webhook. The zero Queue is empty and
// ready; it is safe for concurrent use.
type Queue struct {
	mu            sync.Mutex
	epoch         time.Time // where time begins
	webhooks      roster[*webhookQueue]
	accounts      roster[*account]
	runQueues     [2][standings]runQueue // with something due, in turn
	turn          Standing               // whose turn is next
	spare         []*line                // to be used again
	probes        probes
	later         timers // with something due later
	rests         rests
	suspended     list[lane, *lane] // lanes with something due, of webhooks whose cap was 0 in their round, in the order in which they were asked
	capVersion    uint64
	capRound      uint64 // of asking suspended lanes, since capVersion or in each claim without one
	leases        map[uint64]*lease
	ends          int64 // before which no lease runs out
	token         uint64
	waiting       int
	served        uint64
	expiredLeases uint64 // leases that ran out
	asked         int64  // when Claim was called last
	perAccount    int    // in that claim, if it was for all webhooks
}

// A Pending is a pending delivery that is not leased.
type Pending struct {
	Webhook   string
	Account   string
	Seq       uint64 // the store's number for it, unique to the webhook
	Due       time.Time
	Attempts  int      // made so far
	Before    int      // made before it was last made pending
	Recovered bool     // it comes after all that was not
	First     bool     // it comes before all else of its webhook that was, or was not, recovered
	Standing  Standing // of the webhook, heeded if nothing of it is in the queue yet
	Paused    bool     // whether the webhook is paused, heeded likewise
}

// An item is a Pending that waits in its lane. Times are milliseconds since
// Queue.epoch.
type item struct {
	seq      uint64
	due      int64
	attempts int32
	before   int32 // and, from bit timingShift on, the timing: an item has no byte to spare
}

// A timing is how an item stands to the recovery of its webhook's receiver.
type timing uint8

const (
	scheduled timing = iota // becomes due when the receiver recovers
	early                   // became due so: if that attempt fails, too, the next one waits
	waits                   // stays due when it is: the attempt before was early, or the receiver asked for the wait
)

const timingShift = 29 // the sign bit stays clear

func (a item) madeBefore() int { return int(a.before & (1<<timingShift - 1)) }

func (a item) timing() timing { return timing(a.before >> timingShift) }

func (a item) with(p timing) item {
	a.before = int32(a.madeBefore()) | int32(p)<<timingShift
	return a
}

// Before and Moved make an item a [heap.Item].

func (a item) Before(b item) bool { return a.due < b.due || a.due == b.due && a.seq < b.seq }

func (item) Moved(int) {}

// at returns a time as it is counted here.
func (q *Queue) at(t time.Time) int64 {
	if q.epoch.IsZero() {
		q.epoch = time.Now()
	}
	return t.Sub(q.epoch).Milliseconds()
}

// Add adds a delivery. A delivery that is added twice does no harm: it has one lease at a time, and
// one that the store has settled is claimed once more, which the store finds out when it reads it.
// Counts and ages include it until then.
func (q *Queue) Add(o Pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.webhooks.all[o.Webhook] != nil
	e := q.queueOf(o.Webhook, o.Account, o.Standing)
	if !known {
		e.paused = o.Paused
	}
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

// AddEach adds a delivery for each of an account's webhooks, as it is when an event was
// published. Their numbers follow each other, from first on. The standings are heeded of
// webhooks of which nothing is in the queue yet.
func (q *Queue) AddEach(ids []string, standings []Standing, account string, first uint64, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, id := range ids {
		q.put(&q.queueOf(id, account, standings[i]).lanes[live], item{seq: first + uint64(i), due: q.at(due)})
	}
}

// webhook returns that of a webhook of the account, a new one if need be.
func (q *Queue) queueOf(webhook, of string, standing Standing) *webhookQueue {
	if e := q.webhooks.all[webhook]; e != nil {
		return e
	}
	a := q.accounts.all[of]
	if a == nil {
		a = &account{name: of}
		q.accounts.put(of, a)
	}
	a.webhooks++
	e := newWebhookQueue(webhook, a, standing)
	e.served = q.served // it waits from now on
	e.rest = q.rests.of(webhook)
	e.down, e.failing = e.rest != noRest, q.asked
	q.webhooks.put(webhook, e)
	return e
}

// forgetEmpty forgets a webhook with nothing pending. If it is paused its store says that
// again.
func (q *Queue) forgetEmpty(e *webhookQueue) {
	if e.leases == 0 && len(e.lanes[live].waiting)+len(e.lanes[recovered].waiting) == 0 {
		q.forget(e)
	}
}

// forget forgets a webhook without leases, and its account if it was the last one.
func (q *Queue) forget(e *webhookQueue) {
	if q.webhooks.all[e.webhook] != e {
		return
	}
	e.dropped = true
	q.reschedule(e) // the timers look at what waits in its lanes
	for kind := range e.lanes {
		q.waiting -= len(e.lanes[kind].waiting)
		e.lanes[kind].waiting = nil
	}
	q.webhooks.delete(e.webhook)
	if e.account.webhooks--; e.account.webhooks == 0 {
		q.accounts.delete(e.account.name)
	}
}

// put makes it wait in its lane.
func (q *Queue) put(l *lane, it item) {
	if l.dropped {
		return
	}
	q.waiting++
	l.waiting.Push(it)
	if l.waiting[0] == it {
		q.schedule(l)
	}
}

// take takes the first item that waits in the lane.
func (q *Queue) take(l *lane) item {
	q.waiting--
	it := l.waiting.Pop()
	if l.place >= 0 { // a probe, while it rests
		q.schedule(l)
	}
	return it
}

// schedule puts a lane that is not in a runQueue where it will be found when its first
// item is due.
func (q *Queue) schedule(l *lane) {
	switch {
	case l.place == queued && l.dropped:
		q.exit(l)
	case l.place == queued:
	case l.paused || l.dropped || len(l.waiting) == 0:
		if l.place == suspended {
			q.suspended.remove(l)
			l.place = nowhere
		}
		q.later.remove(l)
	case l.place == suspended:
	case l.place == nowhere:
		q.later.add(l)
	default:
		q.later.Fix(l.place)
	}
}

// MakeDue makes a delivery the next one of its webhook, due at the given time or sooner,
// as one that was not recovered. It reports false if the delivery is leased, or not
// pending, and does nothing then.
func (q *Queue) MakeDue(webhook string, seq uint64, due time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.edit(webhook, seq, func(l *lane, it item) {
		to := &l.lanes[live]
		it = it.with(scheduled)
		it.due = to.firstDue(q.at(due))
		q.put(to, it)
	})
}

// MakeAllDue makes deliveries of a webhook that wait for a later time due then, and returns
// how many. It looks at all that is pending for the webhook.
func (q *Queue) MakeAllDue(webhook string, seqs []uint64, due time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.webhooks.all[webhook]
	if e == nil {
		return 0
	}
	wanted := make(map[uint64]bool, len(seqs))
	for _, seq := range seqs {
		wanted[seq] = true
	}
	return q.bringForward(e, q.at(due), scheduled, func(it item) bool { return wanted[it.seq] })
}

// bringForward makes the items that wait and are wanted due at t, unless they are sooner, and
// sets their timing. It returns how many.
func (q *Queue) bringForward(e *webhookQueue, t int64, p timing, wanted func(item) bool) (n int) {
	for kind := range e.lanes {
		l := &e.lanes[kind]
		taken := l.waiting.TakeOut(func(it item) bool { return it.due > t && wanted(it) })
		for _, it := range taken {
			it = it.with(p)
			it.due = t
			l.waiting.Push(it)
		}
		if len(taken) > 0 {
			q.schedule(l)
		}
		n += len(taken)
	}
	return n
}

// Remove removes a delivery. It reports false if that is leased, or not pending, and does
// nothing then.
func (q *Queue) Remove(webhook string, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.edit(webhook, seq, func(*lane, item) {})
}

// edit takes out the item, if it waits, and hands it to put. It looks at all that is
// pending for the webhook.
func (q *Queue) edit(webhook string, seq uint64, put func(*lane, item)) bool {
	e := q.webhooks.all[webhook]
	if e == nil {
		return false
	}
	for kind := range e.lanes {
		l := &e.lanes[kind]
		if i := slices.IndexFunc(l.waiting, func(it item) bool { return it.seq == seq }); i >= 0 {
			it := l.waiting.Remove(i)
			q.waiting--
			q.schedule(l)
			put(l, it)
			q.forgetEmpty(e)
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
	if e := q.webhooks.all[webhook]; e != nil {
		e.paused, e.since = paused, q.at(time.Now())
		q.reschedule(e)
	}
}

func (q *Queue) reschedule(e *webhookQueue) {
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
	e := q.webhooks.all[webhook]
	if e == nil {
		return nil
	}
	seqs = make([]uint64, 0, e.pending())
	for kind := range e.lanes {
		for _, it := range e.lanes[kind].waiting {
			seqs = append(seqs, it.seq)
		}
	}
	for le := range e.leasesUnderWay() {
		seqs = append(seqs, le.item.seq)
		q.end(le.token)
	}
	q.forget(e)
	return seqs
}

// Clear removes all deliveries that wait. Leases and rests stay.
func (q *Queue) Clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.webhooks.all {
		for kind := range e.lanes {
			l := &e.lanes[kind]
			q.waiting -= len(l.waiting.TakeOut(func(item) bool { return true }))
			q.schedule(l)
		}
		q.forgetEmpty(e)
	}
}

// Backlog answers [webhooks.Queue.Backlog].
func (q *Queue) Backlog(now time.Time, webhook string) webhooks.Backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.at(now)
	oldest := int64(math.MaxInt64)
	look := func(e *webhookQueue) {
		for kind := range e.lanes {
			if l := &e.lanes[kind]; l.ready(t) {
				oldest = min(oldest, l.waiting[0].due)
			}
		}
	}
	var b webhooks.Backlog
	if webhook == "" {
		b.Pending, b.ExpiredLeases = q.waiting+len(q.leases), q.expiredLeases
		for _, e := range q.webhooks.all {
			look(e)
		}
	} else if e := q.webhooks.all[webhook]; e != nil {
		b.Pending = e.pending()
		look(e)
	}
	if oldest < math.MaxInt64 {
		b.OldestDue = now.Add(time.Duration(oldest-t) * time.Millisecond).UTC().Truncate(time.Millisecond)
	}
	return b
}
