package scheduler

import "time"

const (
	maxLooked    = 256 // lanes that LongestWait looks at, in each place
	maxOfAccount = 4   // of them, lanes of one account
)

// LongestWait returns how long the webhook that waits longest for an attempt has done so:
// among those that are healthy, proven and on, have nothing under way, and whose account may
// have another attempt; and of what is pending for them what is due and was not recovered. It
// looks at the webhooks whose turn comes next, some hundred at most. The error is the store's
// trouble with reading what is pending.
func (s *Scheduler) LongestWait() (time.Duration, error) {
	s.lock()
	defer s.mu.Unlock()
	oldest, looked := s.t, 0
	look := func(l *lane) {
		if len(l.slots) == 0 {
			oldest = min(oldest, max(l.waiting[0].due, l.since))
		}
	}
	for line := s.runQueues[live][Proven].first; line != nil && looked < maxLooked; line = line.links.after {
		l := line.lanes.first
		for of := 0; l != nil && of < maxOfAccount; of++ {
			look(l)
			l = l.links.after
			looked++
		}
	}
	for _, l := range s.later.Heap[:min(len(s.later.Heap), maxLooked)] { // became due since the last Next, or could not be loaded
		if l.waiting[0].due <= s.t && l.kind == live && l.standing == Proven && l.health == healthy && !l.account.full() {
			look(l)
		}
	}
	for slot := s.young.last; slot != nil && !slot.loaded; slot = slot.links.before {
		oldest = min(oldest, slot.item.due) // the store has not answered yet
	}
	return time.Duration(s.t-oldest) * time.Millisecond, s.trouble
}
