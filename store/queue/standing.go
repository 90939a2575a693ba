package queue

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

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
func StandingOf(w *webhooks.Webhook) Standing { return standingOf(&w.WebhookHealth) }

func standingOf(w *webhooks.WebhookHealth) Standing {
	switch {
	case w.Proven():
		return Proven
	case !w.FailingSince.IsZero():
		return Failing
	}
	return Untried
}

// longFailing is for how long a webhook fails until its next success counts as a recovery.
const longFailing = time.Minute

// SetStanding notes the standing of a webhook that is in the queue. Proven ends its failing: if
// it had failed for long, or rested, its receiver has recovered, and all that waits for its
// next attempt is due now. What fails again then waits for its next attempt, whatever the
// webhook does: events that fail for reasons of their own do not use up their attempts.
func (q *Queue) SetStanding(webhook string, s Standing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.webhooks.all[webhook]
	if e == nil || e.standing == s {
		return
	}
	recovers := s == Proven && (e.down || e.standing == Failing && q.asked-e.failing >= longFailing.Milliseconds())
	if s == Failing {
		e.failing = q.asked
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
	if recovers {
		q.bringForward(e, q.asked, early, func(it item) bool { return it.timing() == scheduled })
	}
	if s == Proven {
		e.down = false
	}
}
