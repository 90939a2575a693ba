package queue

import (
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A lease is a delivery set aside for an attempt.
type lease struct {
	lane  *lane
	links links[lease] // in webhookQueue.underWay
	item  item
	token uint64
	until int64
	held  bool // being settled: does not run out

	finished bool // does not count in leased
}

func (le *lease) in() *links[lease] { return &le.links }

// lease leases the first item that waits in l. If its delivery is leased already, because it was
// added twice, lease drops the item and reports false.
func (q *Queue) lease(l *lane, until int64) (c Claimed, ok bool) {
	it := q.take(l)
	if l.isLeased(it.seq) {
		return Claimed{}, false
	}
	if len(q.leases) == 0 {
		q.ends = until
	}
	q.ends = min(q.ends, until)
	le := q.begin(lease{lane: l, item: it, until: until})
	q.served++
	l.served = q.served
	l.leased++
	l.account.leased++
	return Claimed{Webhook: l.webhook, Seq: it.seq, Attempt: int(it.attempts) + 1, Before: it.madeBefore(), Token: le.token, Early: it.timing() == early}, true
}

// begin gives a lease its token.
func (q *Queue) begin(le lease) *lease {
	if q.token == 0 {
		q.token = rand.Uint64() // no process takes another's token for its own
	}
	if q.leases == nil {
		q.leases = make(map[uint64]*lease)
	}
	q.token++
	le.token = q.token
	q.leases[le.token] = &le
	le.lane.leases++
	le.lane.underWay.push(&le)
	return &le
}

// Reserve keeps deliveries of a webhook that wait from being claimed, until Done or Release
// with their tokens, which it returns by number. Those that are leased are not among
// them; the token of one that is not pending is 0, which is none. It looks once at all
// that is pending for the webhook.
func (q *Queue) Reserve(webhook string, seqs []uint64) (tokens map[uint64]uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tokens = make(map[uint64]uint64, len(seqs))
	for _, seq := range seqs {
		tokens[seq] = 0
	}
	e := q.webhooks.all[webhook]
	if e == nil || len(seqs) == 0 {
		return tokens
	}
	for le := range e.leasesUnderWay() {
		delete(tokens, le.item.seq)
	}
	least, most := slices.Min(seqs), slices.Max(seqs)
	for kind := range e.lanes {
		l := &e.lanes[kind]
		taken := l.waiting.TakeOut(func(it item) bool {
			if it.seq < least || it.seq > most { // mostly
				return false
			}
			_, wanted := tokens[it.seq]
			return wanted
		})
		if len(taken) == 0 {
			continue
		}
		q.waiting -= len(taken)
		q.schedule(l)
		for _, it := range taken {
			if tokens[it.seq] == 0 { // or else it was added twice
				tokens[it.seq] = q.begin(lease{lane: l, item: it, held: true, finished: true}).token
			}
		}
	}
	return tokens
}

// end ends a lease and reports whether there was one.
func (q *Queue) end(token uint64) (*lease, bool) {
	le := q.leases[token]
	if le == nil {
		return nil, false
	}
	delete(q.leases, token)
	le.lane.leases--
	le.lane.underWay.remove(le)
	le.finish(q.asked)
	return le, true
}

// finish makes the lease count no more, from t on.
func (le *lease) finish(t int64) {
	if !le.finished {
		le.finished = true
		le.lane.since = t
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
			q.expiredLeases++
			le.item.attempts++
			q.put(le.lane, le.item)
		}
	}
}

// Hold keeps the lease from running out while it is being settled, and tells
// what it is for; ok is false if the token is not that of a lease, or it is held
// already. One of Done, Retry, Release and Unhold must follow.
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
	if le, ok := q.end(token); ok {
		q.forgetEmpty(le.lane.webhookQueue)
	}
}

// Retry ends the lease; its delivery is due again at the given time, after that
// many attempts. If the receiver asked for the wait, it is due no sooner when that recovers.
func (q *Queue) Retry(token uint64, due time.Time, attempts int, asked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le, ok := q.end(token); ok {
		it := le.item.with(scheduled)
		if asked || le.item.timing() == early {
			it = it.with(waits)
		}
		it.due, it.attempts = q.at(due), int32(attempts)
		q.put(le.lane, it)
	}
}

// Release ends the lease as if it had never been.
func (q *Queue) Release(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le, ok := q.end(token); ok {
		q.put(le.lane, le.item)
	}
}

// Hasten is Release, and the delivery is due at the given time at the latest, after at least that
// many attempts.
func (q *Queue) Hasten(token uint64, due time.Time, attempts int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le, ok := q.end(token); ok {
		it := le.item
		if at := q.at(due); at < it.due {
			it = it.with(scheduled)
			it.due = at
		}
		it.attempts = max(it.attempts, int32(attempts))
		q.put(le.lane, it)
	}
}

// Postpone is Release, and the delivery is due at the given time at the earliest.
func (q *Queue) Postpone(token uint64, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if le, ok := q.end(token); ok {
		le.item.due = max(le.item.due, q.at(due))
		q.put(le.lane, le.item)
	}
}

// Leases returns the numbers of all deliveries that are leased.
func (q *Queue) Leases() map[uint64]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	seqs := make(map[uint64]bool, len(q.leases))
	for _, le := range q.leases {
		seqs[le.item.seq] = true
	}
	return seqs
}

// Leased reports whether the delivery is leased.
func (q *Queue) Leased(webhook string, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.webhooks.all[webhook]
	return e != nil && e.isLeased(seq)
}

func (e *webhookQueue) isLeased(seq uint64) bool {
	for le := range e.leasesUnderWay() {
		if le.item.seq == seq {
			return true
		}
	}
	return false
}

// leasesUnderWay returns the leases of the webhook. The one that was returned last may be ended.
func (e *webhookQueue) leasesUnderWay() iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for le := e.underWay.first; le != nil; {
			next := le.links.after
			if !yield(le) {
				return
			}
			le = next
		}
	}
}

// UnderWay returns how many leases there are of each webhook that has some, but for those that have
// run out.
func (q *Queue) UnderWay(now time.Time) map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, leases := q.at(now), make(map[string]int)
	for _, le := range q.leases {
		if le.held || le.until > t {
			leases[le.lane.webhook]++
		}
	}
	return leases
}
