package queue

import "math"

// An endpoint is what one webhook is owed. There is none of a webhook that is owed
// nothing.
type endpoint struct {
	webhook string
	account *account
	lanes   [2]lane // live and recovered
	leases  int
	leased  int    // leases that count
	served  uint64 // when it was last given a lease, in leases
	paused  bool
	dropped bool
}

// An account counts the endpoints of its webhooks, and their leases.
type account struct {
	name              string
	endpoints, leased int
}

// A lane holds what an endpoint is owed of one kind.
type lane struct {
	*endpoint
	ring    *ring // it takes turns in
	waiting heap[item]
	place   int // in Queue.later, or one of the below
}

const (
	nowhere = -1
	inRing  = -2
	aside   = -3 // in Queue.aside
)

// The kinds of lanes.
const (
	live = iota
	recovered
)

func newEndpoint(webhook string, account *account, rings *[2]ring) *endpoint {
	e := &endpoint{webhook: webhook, account: account}
	for kind := range e.lanes {
		e.lanes[kind] = lane{endpoint: e, ring: &rings[kind], place: nowhere}
	}
	return e
}

// pending returns how many deliveries the webhook is owed.
func (e *endpoint) pending() int {
	return len(e.lanes[live].waiting) + len(e.lanes[recovered].waiting) + e.leases
}

// has reports whether something waits in the lane that may be claimed at t.
func (l *lane) has(t int64) bool {
	return !l.paused && !l.dropped && len(l.waiting) > 0 && l.waiting[0].due <= t
}

// next returns the lane of the endpoint to claim from at t, or nil.
func (e *endpoint) next(t int64) *lane {
	for kind := range e.lanes {
		if l := &e.lanes[kind]; l.has(t) {
			return l
		}
	}
	return nil
}

// after returns when something that waits in the endpoint's lanes is due next, if
// that is after t.
func (e *endpoint) after(t int64) int64 {
	next := int64(math.MaxInt64)
	for kind := range e.lanes {
		if l := &e.lanes[kind]; !l.paused && len(l.waiting) > 0 && l.due() > t {
			next = min(next, l.due())
		}
	}
	return next
}

// A ring is the lanes with something due, in turn.
type ring []*lane

func (r *ring) push(l *lane) {
	l.place = inRing
	*r = append(*r, l)
}

func (r *ring) pop() *lane {
	l := (*r)[0]
	(*r)[0] = nil
	if *r = (*r)[1:]; len(*r) == 0 {
		*r = nil // a crowd leaves no memory behind
	}
	return l
}
