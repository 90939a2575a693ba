package scheduler

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/heap"
)

// An item is a pending delivery that is not under way.
type item struct {
	number   uint64
	due      int64 // milliseconds since Scheduler.epoch
	attempts int32 // made so far, as it was reported; or unknown
	timing   timing
}

// unknown is the number of attempts of a delivery that was reported while it was under way:
// the next load finds when it is due.
const unknown = -1

// A timing says whether an item becomes due when its webhook's receiver recovers.
type timing uint8

const (
	scheduled timing = iota // becomes due when the receiver recovers
	early                   // became due so: if that attempt fails, too, the next one waits
	waits                   // stays due when it is: the attempt before was early, or the receiver asked for the wait
)

// Before and Moved make an item a [heap.Item].

func (a item) Before(b item) bool { return a.due < b.due || a.due == b.due && a.number < b.number }

func (item) Moved(int) {}

// The kinds of lanes.
const (
	live      = iota
	recovered // comes after all that is live
	kinds
)

// A lane holds the items of one kind of a webhook.
type lane struct {
	*webhook
	kind    uint8
	waiting heap.Heap[item]
	place   int // in Scheduler.later, or one of the below

	line  *line // if it is queued
	links links[lane]
}

const (
	nowhere = heap.Nowhere // nothing may be attempted
	queued  = -2           // in a line: an item is due and the webhook may have an attempt
	ready   = -3           // an item is due, and waits for the webhook's turn or for a slot
)

func (l *lane) in() *links[lane] { return &l.links }

// due returns when the first item may be attempted.
func (l *lane) due() int64 { return max(l.waiting[0].due, l.loadAt) }

// firstDue returns a due time, at most due, that is before those of all items in the lane.
func (l *lane) firstDue(due int64) int64 {
	if len(l.waiting) > 0 {
		return min(due, l.waiting[0].due-1)
	}
	return due
}

// has reports whether an item of the webhook has that number.
func (w *webhook) has(number uint64) bool {
	for kind := range w.lanes {
		if slices.ContainsFunc(w.lanes[kind].waiting, func(it item) bool { return it.number == number }) {
			return true
		}
	}
	return false
}

// dueLane returns the lane of which the next attempt is; nil: nothing is due.
func (w *webhook) dueLane(t int64) *lane {
	for kind := range w.lanes {
		if l := &w.lanes[kind]; len(l.waiting) > 0 && l.due() <= t {
			return l
		}
	}
	return nil
}

// put adds an item to a lane.
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

// take takes out the first item of a lane.
func (s *Scheduler) take(l *lane) item {
	s.waiting--
	return l.waiting.Pop()
}

// remove takes out the items that are wanted.
func (s *Scheduler) remove(w *webhook, wanted func(item) bool) (taken []item) {
	for kind := range w.lanes {
		l := &w.lanes[kind]
		taken = append(taken, l.waiting.TakeOut(wanted)...)
		s.arrangeLane(l) // no lane without items may be in s.later when another moves there
	}
	s.waiting -= len(taken)
	s.arrange(w)
	return taken
}

// bringForward makes items that wait for their next attempt due now, after the receiver has
// recovered.
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

// arrange puts the lanes of a webhook, and the webhook itself, into the queues in which Next finds
// them. It must be called after each change of the webhook's items, health, limit or slots.
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

// moveLane moves a lane to a place that is not in Scheduler.later.
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

// ripen arranges the lanes whose first item has become due.
func (s *Scheduler) ripen() {
	for len(s.later.Heap) > 0 && s.later.Heap[0].due() <= s.t {
		s.arrange(s.later.Heap[0].webhook)
	}
}

// timers hold lanes by when their first item is due.
type timers struct{ heap.Heap[*lane] }

// Before and Moved make a lane a [heap.Item].

func (l *lane) Before(other *lane) bool { return l.due() < other.due() }

func (l *lane) Moved(place int) { l.place = place }

// A Backlog counts what is pending.
type Backlog struct {
	Pending   int
	OldestDue time.Time // of the deliveries that are due and not under way; zero if none is
}

// Backlog counts the deliveries of a webhook, or of all if the ID is empty: that takes a
// millisecond for each 10,000 webhooks. A delivery that was reported twice may count twice
// until it is loaded.
func (s *Scheduler) Backlog(webhookID string) Backlog {
	s.lock()
	defer s.mu.Unlock()
	var b Backlog
	oldest := s.t + 1
	look := func(w *webhook) {
		if w.stopped() {
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
		for _, w := range s.webhooks.all {
			look(w)
		}
	} else if w := s.webhooks.all[webhookID]; w != nil {
		b.Pending = len(w.lanes[live].waiting) + len(w.lanes[recovered].waiting) + len(w.slots)
		look(w)
	}
	if oldest <= s.t {
		b.OldestDue = s.timeOf(oldest).UTC().Truncate(time.Millisecond)
	}
	return b
}
