package scheduler

import "time"

const (
	maxSampled    = 256 // lanes examined in the run queue, and as many among the timers
	maxPerAccount = 4   // lanes of one account examined in the run queue
)

// LongestWait returns the longest time for which a live delivery has been due without an attempt.
// It considers only webhooks that are healthy, proven, on, not paused and without attempts in
// flight, and whose account may have another attempt. It examines at most a few hundred of them, in
// the order of their turns. The error is the store's error, see Trouble.
func (s *Scheduler) LongestWait() (time.Duration, error) {
	s.lock()
	defer s.mu.Unlock()
	oldest, sampled := s.t, 0
	examine := func(l *lane) {
		if len(l.slots) == 0 {
			oldest = min(oldest, max(l.waiting[0].due, l.since, l.until))
		}
	}
	for line := s.runQueues[live][Proven].first; line != nil && sampled < maxSampled; line = line.links.after {
		l := line.lanes.first
		for n := 0; l != nil && n < maxPerAccount; n++ {
			examine(l)
			l = l.links.after
			sampled++
		}
	}
	for _, l := range s.later.Heap[:min(len(s.later.Heap), maxSampled)] { // items that became due since the last Next, or could not be loaded
		if l.waiting[0].due <= s.t && l.kind == live && l.standing == Proven && l.health == healthy && !l.account.full() {
			examine(l)
		}
	}
	for slot := s.young.last; slot != nil && !slot.loaded; slot = slot.links.before {
		oldest = min(oldest, max(slot.item.due, slot.webhook.since, slot.webhook.until)) // the store has not loaded the delivery yet
	}
	return time.Duration(s.t-oldest) * time.Millisecond, s.trouble
}
