package scheduler

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/heap"
)

// An item is a pending delivery that is not in flight.
type item struct {
	number   uint64
	due      int64 // milliseconds since Scheduler.epoch
	attempts int32 // number of attempts that the store reported, or unknown
	timing   timing
}

// unknown is the number of attempts of a delivery that was reported while it was in flight. Its
// due time is not known either; the next load returns it.
const unknown = -1

// A timing says whether an item becomes due when its webhook's receiver recovers.
type timing uint8

const (
	scheduled timing = iota // becomes due when the receiver recovers
	early                   // became due because the receiver recovered; if the attempt fails, the item waits
	waits                   // keeps its due time, because the last attempt was early or the receiver asked for the wait
)

// Before and Moved make an item a [heap.Item].

func (a item) Before(b item) bool { return a.due < b.due || a.due == b.due && a.number < b.number }

func (item) Moved(int) {}

// The kinds of lanes.
const (
	live      = iota
	recovered // attempted after all live items
	kinds
)

// A lane holds the items of one webhook and one kind.
type lane struct {
	*webhook
	kind    uint8
	waiting heap.Heap[item]
	place   int // index in Scheduler.later, or nowhere, queued or ready

	line  *line // if queued
	links links[lane]
}

const (
	nowhere = heap.Nowhere // nothing may be attempted
	queued  = -2           // in a line: an item is due, and the webhook may have an attempt
	ready   = -3           // an item is due and waits for the webhook's turn or a slot
)

func (l *lane) in() *links[lane] { return &l.links }

// due returns the time, as an item time, at which the first item may be attempted.
func (l *lane) due() int64 { return max(l.waiting[0].due, l.loadAt, l.until) }

// firstDue returns a due time, at most due, that puts an item before all other items in the lane.
func (l *lane) firstDue(due int64) int64 {
	if len(l.waiting) > 0 {
		return min(due, l.waiting[0].due-1)
	}
	return due
}

// has reports whether the webhook has an item with the number.
func (w *webhook) has(number uint64) bool {
	for kind := range w.lanes {
		if slices.ContainsFunc(w.lanes[kind].waiting, func(it item) bool { return it.number == number }) {
			return true
		}
	}
	return false
}

// dueLane returns the lane whose first item is to be attempted next, or nil if no item is due at
// t.
func (w *webhook) dueLane(t int64) *lane {
	for kind := range w.lanes {
		if l := &w.lanes[kind]; len(l.waiting) > 0 && l.due() <= t {
			return l
		}
	}
	return nil
}

func (s *Scheduler) put(l *lane, it item) {
	if l.dropped {
		return
	}
	s.revive(l.webhook)
	s.waiting++
	l.waiting.Push(it)
	if l.waiting[0] == it {
		s.arrange(l.webhook)
	}
}

// take removes and returns the first item of a lane.
func (s *Scheduler) take(l *lane) item {
	s.waiting--
	return l.waiting.Pop()
}

// remove removes and returns the items that satisfy wanted.
func (s *Scheduler) remove(w *webhook, wanted func(item) bool) (removed []item) {
	for kind := range w.lanes {
		l := &w.lanes[kind]
		removed = append(removed, l.waiting.TakeOut(wanted)...)
		s.arrangeLane(l) // s.later must not contain empty lanes when another lane moves in it
	}
	s.waiting -= len(removed)
	s.arrange(w)
	return removed
}

// bringForward makes items that wait for a retry due now, because the receiver has recovered.
func (s *Scheduler) bringForward(w *webhook) {
	for kind := range w.lanes {
		l := &w.lanes[kind]
		for _, it := range l.waiting.TakeOut(func(it item) bool { return it.due > s.t && it.timing == scheduled }) {
			it.due, it.timing = s.t, early
			l.waiting.Push(it)
		}
		s.arrangeLane(l)
	}
	s.arrange(w)
}

// arrange puts a webhook and its lanes into the queues in which Next finds them. It must be
// called after each change of the webhook's items, health, limit or slots.
func (s *Scheduler) arrange(w *webhook) {
	due := false
	for kind := range w.lanes {
		l := &w.lanes[kind]
		s.arrangeLane(l)
		due = due || l.place == ready
	}
	if due && w.health != healthy && w.mayBegin() {
		s.queues[w.health].put(w)
	} else {
		s.queues[w.health].remove(w)
	}
}

func (s *Scheduler) arrangeLane(l *lane) {
	switch {
	case l.stopped() || len(l.waiting) == 0:
		s.moveLane(l, nowhere)
	case l.due() > s.t:
		if l.place >= 0 {
			s.later.Fix(l.place)
			return
		}
		s.moveLane(l, nowhere)
		s.later.Push(l)
	case l.health == healthy && l.mayBegin():
		s.moveLane(l, queued)
	default:
		s.moveLane(l, ready)
	}
}

// moveLane sets the place of a lane: nowhere, queued or ready.
func (s *Scheduler) moveLane(l *lane, place int) {
	if l.place == place {
		return
	}
	switch {
	case l.place >= 0:
		s.later.Remove(l.place)
	case l.place == queued:
		s.leaveLine(l)
	}
	if l.place = place; place == queued {
		s.enterLine(l)
	}
}

// ripen calls arrange for webhooks with an item that has become due.
func (s *Scheduler) ripen() {
	for len(s.later.Heap) > 0 && s.later.Heap[0].due() <= s.t {
		s.arrange(s.later.Heap[0].webhook)
	}
}

// timers orders lanes by the due time of their first item.
type timers struct{ heap.Heap[*lane] }

// Before and Moved make a lane a [heap.Item].

func (l *lane) Before(other *lane) bool { return l.due() < other.due() }

func (l *lane) Moved(place int) { l.place = place }

// A Backlog counts pending deliveries.
type Backlog struct {
	Pending   int
	OldestDue time.Time // of due deliveries that are not in flight; zero if there are none
}

// Backlog counts the deliveries of a webhook, or of all webhooks if the ID is empty. Counting all
// takes a millisecond per 10,000 webhooks. A delivery that was reported twice may count twice until
// it is loaded.
func (s *Scheduler) Backlog(webhookID string) Backlog {
	s.lock()
	defer s.mu.Unlock()
	var b Backlog
	oldest := s.t + 1
	visit := func(w *webhook) {
		if w.stopped() || w.until > s.t {
			return
		}
		for kind := range w.lanes {
			if l := &w.lanes[kind]; len(l.waiting) > 0 {
				oldest = min(oldest, l.waiting[0].due)
			}
		}
	}
	if webhookID == "" {
		b.Pending = s.waiting + s.inFlight + s.unrecorded
		for _, w := range s.webhooks {
			visit(w)
		}
	} else if w := s.webhooks[webhookID]; w != nil {
		b.Pending = len(w.lanes[live].waiting) + len(w.lanes[recovered].waiting) + len(w.slots)
		visit(w)
	}
	if oldest <= s.t {
		b.OldestDue = s.timeOf(oldest).UTC().Truncate(time.Millisecond)
	}
	return b
}
