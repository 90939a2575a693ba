package scheduler

import (
	"cmp"
	"slices"
	"time"
)

const (
	requestPause = time.Second      // between two requested attempts to one webhook, at least
	requestLife  = 75 * time.Second // a request ends then: no webhook is left alone for longer

	// maxRequested is how many requested attempts one webhook may have in flight: the oldest
	// gives way to one more.
	maxRequested = 4
)

// requests are the webhooks to which an attempt was requested although their receivers may be
// down, and those that had one within the last second. Some may have nothing pending yet.
type requests struct {
	list []*request // oldest first
	all  map[string]*request
}

type request struct {
	webhook string
	at      time.Time // of the last call of Probe; zero: there was an attempt since
	from    time.Time // of the next attempt, at the earliest
}

func (s *Scheduler) request(webhook string) *request {
	q := s.requests.all[webhook]
	if q == nil {
		q = &request{webhook: webhook}
		if s.requests.all == nil {
			s.requests.all = make(map[string]*request)
		}
		s.requests.all[webhook] = q
		s.requests.list = append(s.requests.list, q)
	}
	q.at = s.now
	return q
}

// pickRequested begins requested attempts. Accounts take turns, beginning with the one whose
// last requested attempt is oldest: one that requests many does not hold up the others.
func (s *Scheduler) pickRequested(r *round) {
	if len(s.requests.list) == 0 {
		return
	}
	due := make(map[*account][]*request)
	var accounts []*account
	s.requests.list = slices.DeleteFunc(s.requests.list, func(q *request) (ended bool) {
		if q.at.IsZero() || s.now.Sub(q.at) > requestLife {
			if ended = !q.from.After(s.now); ended {
				delete(s.requests.all, q.webhook)
			}
			return ended
		}
		if w := s.webhooks.all[q.webhook]; w != nil && !w.stopped() && !q.from.After(s.now) && w.dueLane(s.t) != nil {
			if due[w.account] == nil {
				accounts = append(accounts, w.account)
			}
			due[w.account] = append(due[w.account], q)
		}
		return false
	})
	slices.SortStableFunc(accounts, func(a, b *account) int { return cmp.Compare(a.probed, b.probed) })
	for len(accounts) > 0 && r.limit > 0 && s.requestRoom() > 0 {
		accounts = slices.DeleteFunc(accounts, func(a *account) (done bool) {
			if len(due[a]) == 0 || r.limit == 0 || s.requestRoom() == 0 || a.full() || a.requested >= s.requestShare() {
				return true
			}
			q := due[a][0]
			due[a] = due[a][1:]
			w := s.webhooks.all[q.webhook]
			slot := s.beginRequested(w, r)
			if s.arrange(w); slot != nil {
				a.probed = s.served
				q.at, q.from = time.Time{}, s.now.Add(requestPause)
			}
			return false
		})
	}
}

// beginRequested begins an attempt of what is due for the webhook.
func (s *Scheduler) beginRequested(w *webhook, r *round) *Slot {
	for l := w.dueLane(s.t); l != nil; l = w.dueLane(s.t) { // until it is no double
		if slot := s.begin(l, r); slot != nil {
			s.setRequested(slot)
			return slot
		}
	}
	return nil
}

// setRequested makes the slot one of a requested attempt.
func (s *Scheduler) setRequested(slot *Slot) {
	var oldest *Slot
	n := 0
	w := slot.webhook
	for _, other := range w.slots {
		if other.requested && !other.cut && !other.released {
			if n++; oldest == nil || other.begun.Before(oldest.begun) {
				oldest = other
			}
		}
	}
	if n == maxRequested {
		s.cutShort(oldest)
	}
	slot.requested, slot.turn = true, false
	s.requested++
	w.account.requested++
	s.overShare = s.overShare || s.requestsCrowded(w.account)
	if w.health == open {
		w.turn = latest(w.turn, slot.begun.Add(2*requestPause)) // another one may be requested before
	}
}

// nextRequest returns when a requested attempt may begin if nothing else happens, or then if
// that is sooner.
func (s *Scheduler) nextRequest(then time.Time) time.Time {
	if s.requestRoom() == 0 {
		return then
	}
	for _, q := range s.requests.list {
		if w := s.webhooks.all[q.webhook]; w != nil && !q.at.IsZero() && !w.stopped() && !s.requestsCrowded(w.account) && !w.account.full() {
			for kind := range w.lanes {
				if l := &w.lanes[kind]; len(l.waiting) > 0 {
					then = earliest(then, latest(q.from, s.timeOf(l.due())))
				}
			}
		}
	}
	return then
}

// requestRoom returns how many more requested attempts there may be: an eighth of the
// slots are for them.
func (s *Scheduler) requestRoom() int { return max(0, s.requestSlots()-s.requested) }

func (s *Scheduler) requestSlots() int { return max(1, s.slots/8) }

// requestShare returns how many of them an account may have, so that one account's requests to
// receivers that hang do not hold up those of others.
func (s *Scheduler) requestShare() int { return max(1, s.requestSlots()/4) }

// requestsCrowded reports whether the account can have no more requested attempts.
func (s *Scheduler) requestsCrowded(a *account) bool {
	return s.requestRoom() == 0 || a.requested >= s.requestShare()
}
