package queue

import "github.com/storageapi/storageapi/webhooks"

// A Standing is what the store's records tell of a webhook's receiver. Each has
// runQueues of its own, and the runQueues take turns: however many webhooks of one standing
// have something due, those of another do not wait behind them.
type Standing uint8

// The standings. Unproven webhooks, as [webhooks.Claim] has them, are all but the
// Proven.
const (
	Untried Standing = iota // it has taken nothing yet
	Failing                 // all attempts since some time have failed
	Proven
	standings
)

// StandingOf returns the standing of a webhook.
func StandingOf(w *webhooks.Webhook) Standing {
	switch {
	case w.Proven():
		return Proven
	case !w.FailingSince.IsZero():
		return Failing
	}
	return Untried
}

// SetStanding notes the standing of a webhook that is in the queue.
func (q *Queue) SetStanding(webhook string, s Standing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.webhooks.all[webhook]
	if e == nil || e.standing == s {
		return
	}
	e.standing, e.since = s, q.asked
	for kind := range e.lanes {
		switch l := &e.lanes[kind]; l.place {
		case queued:
			q.exit(l)
			q.enter(l)
		case suspended: // its cap may be another
			q.resume(l)
		}
	}
}
