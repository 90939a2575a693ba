package queue

import (
	"cmp"
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
}

// maxWait is the longest that a Claim may tell its caller to wait.
const maxWait = time.Hour

// Claim leases due deliveries as [webhooks.Store] has it. wait is in how long
// another Claim could find more if nothing else happens: at most an hour.
func (q *Queue) Claim(now time.Time, claim webhooks.Claim) (claimed []Claimed, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.at(now)
	until := t + claim.Lease.Milliseconds()
	for _, token := range claim.Finished {
		if le := q.leases[token]; le != nil {
			le.land()
			le.until = max(le.until, until)
		}
	}
	q.expire(t)
	q.wake(t)

	claimed, next := q.claimProbes(nil, t, &claim)
	if claim.PerWebhook == 0 {
		claimed = q.claimCapped(claimed, t, &claim)
	} else {
		if t >= q.recalls { // who set them aside may claim no more
			claim.Raised = nil
		}
		q.recall(claim.Raised, t)
		claimed = q.claimTurns(claimed, t, &claim)
	}
	if len(claimed) == claim.Limit {
		return claimed, 0
	}
	if len(q.later) > 0 {
		next = min(next, q.later[0].due())
	}
	if claim.PerWebhook == 0 { // whose lanes stay in line when nothing of them is due any more
		for webhook := range claim.Caps {
			if e := q.endpoints.all[webhook]; e != nil {
				next = min(next, e.dueAfter(t))
			}
		}
	}
	if len(q.leases) > 0 {
		next = min(next, q.ends)
	}
	if len(q.aside) > 0 {
		next = min(next, q.recalls)
	}
	return claimed, max(0, time.Duration(next-t)*time.Millisecond)
}

// claimCapped claims for the webhooks that the claim has caps for, and for no
// others: whoever waits longest for a lease comes first, one a turn.
func (q *Queue) claimCapped(claimed []Claimed, t int64, claim *webhooks.Claim) []Claimed {
	var due []*endpoint
	for webhook := range claim.Caps {
		if e := q.endpoints.all[webhook]; e != nil && e.next(t) != nil {
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

// off reports whether the claim allows none of the endpoint, whatever is leased.
func (e *endpoint) off(claim *webhooks.Claim) bool {
	limit, special := claim.Caps[e.webhook]
	return special && limit == 0
}

// setAside keeps a lane out of line until its endpoint is recalled.
func (q *Queue) setAside(l *lane) {
	if q.aside == nil {
		q.aside = make(map[*lane]bool)
	}
	q.aside[l] = true
	l.place = aside
}

// maxAside is for how long lanes are set aside at most, in milliseconds.
const maxAside = 60_000

// recall puts lanes that were set aside back in line: those of the webhooks, or all
// if that is nil.
func (q *Queue) recall(webhooks []string, t int64) {
	if webhooks == nil {
		q.recalls = t + maxAside
		for l := range q.aside {
			q.enter(l)
		}
		clear(q.aside)
		return
	}
	for _, webhook := range webhooks {
		e := q.endpoints.all[webhook]
		for kind := 0; e != nil && kind < len(e.lanes); kind++ {
			if l := &e.lanes[kind]; l.place == aside {
				delete(q.aside, l)
				q.enter(l)
			}
		}
	}
}

// full reports whether the claim allows no more of the endpoint.
func (e *endpoint) full(claim *webhooks.Claim) bool {
	limit, special := claim.Caps[e.webhook]
	if !special {
		limit = claim.PerWebhook
		if claim.PerUnproven > 0 && e.standing != Proven {
			limit = min(limit, claim.PerUnproven)
		}
	}
	return e.leased >= limit || claim.PerAccount > 0 && e.account.leased >= claim.PerAccount
}

// wake puts the lanes whose time has come in line.
func (q *Queue) wake(t int64) {
	for len(q.later) > 0 && q.later[0].due() <= t {
		l := q.later[0]
		q.later.remove(l)
		q.enter(l)
	}
}
