package scheduler

import (
	"cmp"
	"slices"
	"time"
)

const (
	requestPause = time.Second      // minimum time between two requested attempts to one webhook
	requestLife  = 75 * time.Second // after this time a request expires; longer than any pause between probes

	// maxRequested is the maximum number of requested attempts in flight to one webhook. Another
	// request cancels the oldest.
	maxRequested = 4
)

// requests holds the webhooks with a requested attempt that has not begun, or that began within the
// last requestPause. Some of these webhooks may have no pending delivery yet.
type requests struct {
	list []*request // oldest first
	all  map[string]*request
}

type request struct {
	webhook string
	at      time.Time // last call to Probe; zero if an attempt has begun for it
	from    time.Time // earliest time of the next attempt
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

// pickRequested begins requested attempts. Accounts take turns, starting with the account whose
// last requested attempt is oldest, so that many requests of one account do not delay others.
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
		if w := s.webhooks[q.webhook]; w != nil && !w.stopped() && !q.from.After(s.now) && w.dueLane(s.t) != nil {
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
			w := s.webhooks[q.webhook]
			slot := s.beginRequested(w, r)
			if s.arrange(w); slot != nil {
				a.probed = s.served
				q.at, q.from = time.Time{}, s.now.Add(requestPause)
			}
			return false
		})
	}
}

// beginRequested begins an attempt of the webhook's next due delivery. It skips duplicates.
func (s *Scheduler) beginRequested(w *webhook, r *round) *Slot {
	for l := w.dueLane(s.t); l != nil; l = w.dueLane(s.t) {
		if slot := s.begin(l, r); slot != nil {
			s.setRequested(slot)
			return slot
		}
	}
	return nil
}

// setRequested marks the slot's attempt as requested.
func (s *Scheduler) setRequested(slot *Slot) {
	var oldest *Slot
	n := 0
	w := slot.webhook
	for _, other := range w.slots {
		if other.requested && !other.cut && !other.freed {
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
		w.turn = latest(w.turn, slot.begun.Add(2*requestPause)) // leave time for a requested attempt first
	}
}

// nextRequest returns the time at which the next requested attempt may begin, or the given time if
// that is earlier.
func (s *Scheduler) nextRequest(then time.Time) time.Time {
	if s.requestRoom() == 0 {
		return then
	}
	for _, q := range s.requests.list {
		if w := s.webhooks[q.webhook]; w != nil && !q.at.IsZero() && !w.stopped() && !s.requestsCrowded(w.account) && !w.account.full() {
			for kind := range w.lanes {
				if l := &w.lanes[kind]; len(l.waiting) > 0 {
					then = earliest(then, latest(q.from, s.timeOf(l.due())))
				}
			}
		}
	}
	return then
}

// requestRoom returns how many more requested attempts may begin. Their limit is an eighth of the
// slots.
func (s *Scheduler) requestRoom() int { return max(0, s.requestSlots()-s.requested) }

func (s *Scheduler) requestSlots() int { return max(1, s.slots/8) }

// requestShare returns the limit per account. It prevents an account whose requested attempts hang
// from delaying the requests of other accounts.
func (s *Scheduler) requestShare() int { return max(1, s.requestSlots()/4) }

// requestsCrowded reports whether the account may not begin another requested attempt now.
func (s *Scheduler) requestsCrowded(a *account) bool {
	return s.requestRoom() == 0 || a.requested >= s.requestShare()
}
