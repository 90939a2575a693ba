package scheduler

import (
	"github.com/storageapi/storageapi/internal/heap"
)

// A turnQueue holds the webhooks of one health that have a due item and may have another attempt,
// in the order of their turns.
type turnQueue struct{ heap.Heap[*webhook] }

const parked = -2 // in account.parked

func (q *turnQueue) put(w *webhook) {
	switch {
	case w.place >= 0:
		q.Fix(w.place)
	case w.place == nowhere:
		q.Push(w)
	}
}

func (q *turnQueue) remove(w *webhook) {
	if w.place >= 0 {
		q.Remove(w.place)
	}
	w.place = nowhere
}

// Before and Moved make a webhook a [heap.Item].

func (w *webhook) Before(other *webhook) bool {
	return w.turn.Before(other.turn) || w.turn.Equal(other.turn) && w.served < other.served
}

func (w *webhook) Moved(place int) { w.place = place }

// pickTurns begins attempts of unhealthy webhooks, which take turns. The parameter most is a limit
// on the attempts, in addition to the webhooks' share of the slots.
func (s *Scheduler) pickTurns(r *round, most int) {
	for most > 0 && s.spare() > 0 {
		w := s.nextTurn(s.failingRoom())
		if w == nil || w.turn.After(s.now) {
			return
		}
		if w.account.spare() <= 0 || w.account.full() {
			s.queues[w.health].remove(w)
			w.place = parked
			w.account.parked = append(w.account.parked, w)
			continue
		}
		if s.beginTurn(w, r) != nil {
			most--
		}
	}
}

// beginTurn begins an attempt of w, whose turn it is.
func (s *Scheduler) beginTurn(w *webhook, r *round) *Slot {
	s.queues[w.health].remove(w) // the order of w changes, and begin may put other webhooks into the queue
	w.turn, w.served = s.now, s.served
	slot := s.begin(w.dueLane(s.t), r)
	s.arrange(w)
	return slot
}

// nextTurn returns the webhook whose turn is next, or nil. failing is the number of free slots
// for failing webhooks.
func (s *Scheduler) nextTurn(failing int) *webhook {
	var first *webhook
	for h := range s.queues {
		queue := s.queues[h].Heap
		if len(queue) > 0 && (!health(h).failing() || failing > 0) && (first == nil || queue[0].Before(first)) {
			first = queue[0]
		}
	}
	return first
}

// unpark puts parked webhooks of the account back into their queues, up to one for each spare slot.
func (s *Scheduler) unpark(a *account) {
	if len(a.parked) == 0 || a.full() {
		return
	}
	for n := a.spare(); n > 0 && len(a.parked) > 0; {
		w := a.parked[0]
		a.parked[0] = nil
		a.parked = a.parked[1:]
		if w.place == parked {
			w.place = nowhere
			s.arrange(w)
			n--
		}
	}
}
