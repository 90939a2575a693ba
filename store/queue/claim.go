package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A Claimed is a leased delivery.
type Claimed struct {
	Webhook string
	Seq     uint64
	Attempt int // the number of the attempt to make
	Before  int
	Token   uint64
	Probe   bool // it is one that Probe was called for
	Early   bool // the receiver has recovered, and the delivery need not be due
}

// maxWait is the longest that a Claim may tell its caller to wait.
const maxWait = time.Hour

// Claim leases due deliveries as [webhooks.Store] has it. wait is in how long
// another Claim could find more if nothing else happens: at most an hour.
func (q *Queue) Claim(now time.Time, claim webhooks.Claim) (claimed []Claimed, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.at(now)
	q.asked = t
	until := t + claim.Lease.Milliseconds()
	for _, token := range claim.Finished {
		if le := q.leases[token]; le != nil {
			le.finish(t)
			le.until = max(le.until, until)
		}
	}
	q.expire(t)
	q.wake(t)

	claimed = make([]Claimed, 0, min(claim.Limit, q.waiting, 16)) // more seldom come
	claimed, next := q.claimProbes(claimed, t, &claim)
	more := false
	if len(claim.Webhooks) > 0 {
		claimed = q.claimFor(claimed, t, &claim)
	} else {
		q.perAccount = claim.PerAccount
		more = q.resumeSome(&claim)
		claimed = q.claimTurns(claimed, t, &claim)
	}
	if len(claimed) == claim.Limit || more {
		return claimed, 0
	}
	next = q.later.first(next)
	for _, webhook := range claim.Webhooks { // whose lanes stay in line when nothing of them is due any more
		if e := q.webhooks.all[webhook]; e != nil {
			next = min(next, e.dueAfter(t, e.rest))
		}
	}
	if len(q.leases) > 0 {
		next = min(next, q.ends)
	}
	return claimed, max(0, time.Duration(next-t)*time.Millisecond)
}

// claimFor claims for the webhooks that the claim names, and for no others: of them the
// one that waits longest for a lease comes first, one a turn.
func (q *Queue) claimFor(claimed []Claimed, t int64, claim *webhooks.Claim) []Claimed {
	var due []*webhookQueue
	for _, webhook := range claim.Webhooks {
		if e := q.webhooks.all[webhook]; e != nil && e.rest <= t && e.next(t) != nil {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *webhookQueue) int { return cmp.Compare(a.served, b.served) })
	for len(due) > 0 {
		turn := due
		due = due[:0]
		for _, e := range turn {
			if l := e.next(t); len(claimed) < claim.Limit && l != nil && e.leased < e.cap(claim) && !e.account.full(claim) {
				if c, ok := q.lease(l, t+claim.Lease.Milliseconds()); ok {
					claimed = append(claimed, c)
				}
				due = append(due, e)
			}
		}
	}
	return claimed
}

// cap returns how many leases the webhook may have in the claim.
func (e *webhookQueue) cap(claim *webhooks.Claim) int {
	if claim.Cap == nil {
		return math.MaxInt
	}
	return claim.Cap(e.webhook, e.standing == Proven)
}

// full reports whether the claim allows no more of the account.
func (a *account) full(claim *webhooks.Claim) bool {
	return claim.PerAccount > 0 && a.leased >= claim.PerAccount
}

// maxAsked is how many suspended lanes a claim asks at most: others wait for it meanwhile.
const maxAsked = 256

// resumeSome has suspended lanes looked at again whose webhooks have a cap above 0 now. It
// asks each once if the caps may have changed, those first that were asked longest ago, and
// reports whether it has left some to the next claim, which a claim without a version does
// not.
func (q *Queue) resumeSome(claim *webhooks.Claim) (more bool) {
	if claim.CapVersion == 0 || claim.CapVersion != q.capVersion {
		q.capVersion = claim.CapVersion
		q.capRound++
	}
	for asked := 0; q.suspended.first != nil && q.suspended.first.asked != q.capRound; asked++ {
		if asked == maxAsked && claim.CapVersion != 0 {
			return true
		}
		l := q.suspended.first
		if l.cap(claim) > 0 {
			q.resume(l)
		} else {
			q.suspended.remove(l)
			q.suspend(l)
		}
	}
	return false
}

// wake puts the lanes whose time has come in line.
func (q *Queue) wake(t int64) {
	for len(q.later.Heap) > 0 && q.later.Heap[0].due() <= t {
		q.enter(q.later.Pop())
	}
}
