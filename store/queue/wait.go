package queue

import "time"

const (
	maxLooked    = 256 // lanes that LongestWait looks at, in each place
	maxOfAccount = 4   // of them, lanes of one account
)

// LongestWait answers [webhooks.Queue.LongestWait]. It looks at the webhooks whose turn
// comes next, and at those that no Claim has seen yet, at some hundred at most. What was due
// when the queue was made waits since then. When a lease ended is known as of the last
// Claim.
func (q *Queue) LongestWait(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.at(now)
	oldest := t
	look := func(l *lane) {
		full := q.perAccount > 0 && l.account.leased >= q.perAccount
		if l.kind == live && l.standing == Proven && l.has(t) && l.leased == 0 && !full {
			oldest = min(oldest, max(l.due(), l.since))
		}
	}
	looked := 0
	for line := q.runQueues[live][Proven].first; line != nil && looked < maxLooked; line = line.links.after {
		l := line.lanes.first
		for of := 0; l != nil && of < maxOfAccount; of++ {
			look(l)
			l = l.links.after
			looked++
		}
	}
	for _, l := range q.later.Heap[:min(len(q.later.Heap), maxLooked)] { // those due first are at its top
		look(l)
	}
	return time.Duration(t-oldest) * time.Millisecond
}
