package limiter

import (
	"time"

	"github.com/storageapi/storageapi/internal/heap"
)

const (
	minRest  = 25 * time.Millisecond // of slow webhooks for which nothing is due:
	restEach = 20 * time.Microsecond // this for each webhook if that is longer
)

// A queue holds the webhooks of one health that may have an attempt more, by when their
// turn is.
type queue struct{ heap.Heap[*webhook] }

func (q *queue) put(w *webhook) {
	switch {
	case w.place >= 0:
		q.Fix(w.place)
	case w.place == nowhere:
		q.Push(w)
	}
}

func (q *queue) remove(w *webhook) {
	if w.place >= 0 {
		q.Remove(w.place)
	}
	w.place = nowhere
}

// Before and Moved make a webhook a [heap.Item].

func (w *webhook) Before(other *webhook) bool { return w.turn.Before(other.turn) }
func (w *webhook) Moved(place int)            { w.place = place }

// Turns chooses webhooks that are not healthy and may have attempts more, up to limit in
// all, and how many that is. If it is any, EndTurns must be called after the claim.
func (l *Limiter) Turns(now time.Time, limit int) (webhooks []string, turns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.chosen)
	l.chosen, l.turns = l.chosen[:0], l.turns[:0]
	failing, room := l.failingRoom(), min(limit, l.spare())
	give := func(w *webhook) {
		w.given++
		w.account.offered++
		turns++
		if w.health.failing() {
			failing--
		}
	}
	for turns < room {
		w := l.next(failing)
		if w == nil || w.turn.After(now) {
			break
		}
		l.queues[w.health].remove(w)
		if w.account.spare() <= 0 {
			w.place = parked
			w.account.parked = append(w.account.parked, w)
			continue
		}
		l.chosen, l.turns = append(l.chosen, w), append(l.turns, w.id)
		w.had = len(w.slots)
		give(w)
	}
	for more := true; more; { // what room is left, to each one more
		more = false
		for _, w := range l.chosen {
			if turns < room && w.had+w.given < w.limit() && w.account.spare() > 0 && (!w.health.failing() || failing > 0) {
				give(w)
				more = true
			}
		}
	}
	return l.turns, turns
}

// next returns the webhook whose turn is next, or nil; failing tells how many more may be
// failing.
func (l *Limiter) next(failing int) *webhook {
	var first *webhook
	for h := range l.queues {
		queue := l.queues[h].Heap
		if len(queue) > 0 && (!health(h).failing() || failing > 0) && (first == nil || queue[0].turn.Before(first.turn)) {
			first = queue[0]
		}
	}
	return first
}

// EndTurns ends a claim of what Turns returned, after what it got has begun. more tells that
// there may be something due for those that got nothing: what was claimed need not be attempted.
func (l *Limiter) EndTurns(now time.Time, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.beat.After(now) {
		l.beat = now.Add(max(minRest, time.Duration(len(l.webhooks))*restEach))
	}
	for _, w := range l.chosen {
		got := len(w.slots) - w.had
		w.account.offered -= w.given
		w.given = 0
		l.unpark(w.account)
		switch {
		case err != nil:
		case got > 0, more:
			w.turn = now
		case w.health == open && len(w.slots) > 0: // an attempt was requested just now
		case w.isIdle() && now.Sub(w.active) >= trackedFor:
			l.forget(w)
			continue
		case w.health == open && w.trusted: // nothing was due
			l.halfOpen(w, now)
		case w.health == open:
			l.rest(w, now)
		default:
			w.turn = l.beat // all at once: it is one claim
		}
		l.refresh(w)
	}
}

// unpark puts webhooks of the account back in their queues, as many as it has slots to
// spare.
func (l *Limiter) unpark(a *account) {
	for n := a.spare(); n > 0 && len(a.parked) > 0; {
		w := a.parked[0]
		a.parked[0] = nil
		a.parked = a.parked[1:]
		if w.place == parked {
			w.place = nowhere
			l.refresh(w)
			n--
		}
	}
}
