package queue

import (
	"math"

	"github.com/storageapi/storageapi/internal/heap"
)

// A webhookQueue holds what is pending for one webhook. There is none of a webhook with
// nothing pending.
type webhookQueue struct {
	webhook  string
	account  *account
	lanes    [2]lane // live and recovered
	standing Standing
	leases   int
	leased   int // leases that count
	underWay list[lease, *lease]
	served   uint64 // when it was last given a lease, in leases
	rest     int64  // until when it is left alone
	since    int64  // when it last came to wait: a lease of it ended, it was resumed
	failing  int64  // since when its standing is known to be Failing
	down     bool   // its receiver was found to be down, and has taken nothing since
	paused   bool
	dropped  bool
}

// An account counts the webhooks of its webhooks, and their leases, and has their
// lanes with something due in lines.
type account struct {
	name             string
	webhooks, leased int
	probed           uint64              // Queue.served when its last probe was leased
	lines            [2][standings]*line // nil: no lane is in it
}

// A lane holds what is pending for a webhook of one kind.
type lane struct {
	*webhookQueue
	kind    uint8
	waiting heap.Heap[item]
	place   int // in Queue.later, or one of the below

	line  *line       // if it is queued
	links links[lane] // if it is queued or suspended
	asked uint64      // in which Queue.capRound, if it is suspended
}

const (
	nowhere   = heap.Nowhere
	queued    = -2
	suspended = -3 // in Queue.suspended
)

// The kinds of lanes.
const (
	live = iota
	recovered
)

func newWebhookQueue(webhook string, account *account, standing Standing) *webhookQueue {
	e := &webhookQueue{webhook: webhook, account: account, standing: standing}
	for kind := range e.lanes {
		e.lanes[kind] = lane{webhookQueue: e, kind: uint8(kind), place: nowhere}
	}
	return e
}

// pending returns how many deliveries are pending.
func (e *webhookQueue) pending() int {
	return len(e.lanes[live].waiting) + len(e.lanes[recovered].waiting) + e.leases
}

// ready reports whether something waits in the lane that is due at t.
func (l *lane) ready(t int64) bool {
	return !l.paused && !l.dropped && len(l.waiting) > 0 && l.waiting[0].due <= t
}

// has reports whether something waits in the lane that may be claimed at t.
func (l *lane) has(t int64) bool { return l.ready(t) && l.rest <= t }

// due returns when the first item that waits in the lane may be claimed.
func (l *lane) due() int64 { return max(l.waiting[0].due, l.rest) }

// firstDue returns when something is due that is to come before all that waits in the
// lane: then, or sooner.
func (l *lane) firstDue(then int64) int64 {
	if len(l.waiting) > 0 {
		return min(then, l.waiting[0].due-1)
	}
	return then
}

// next returns the lane of the webhook to claim from at t, or nil, whether or not it
// rests.
func (e *webhookQueue) next(t int64) *lane {
	for kind := range e.lanes {
		if l := &e.lanes[kind]; l.ready(t) {
			return l
		}
	}
	return nil
}

// dueAfter returns when something that waits in the webhook's lanes may be claimed next, if
// that is after t and the webhook is left alone until rest.
func (e *webhookQueue) dueAfter(t, rest int64) int64 {
	next := int64(math.MaxInt64)
	for kind := range e.lanes {
		if l := &e.lanes[kind]; !l.paused && len(l.waiting) > 0 {
			if due := max(l.waiting[0].due, rest); due > t {
				next = min(next, due)
			}
		}
	}
	return next
}
