package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// counts are the counters of a pool or the scheduler.
type counts struct {
	Webhooks, Slow, InFlight, Restricted, Failing, Requested, Unproven int
}

func (c *counts) add(other counts) {
	c.Webhooks += other.Webhooks
	c.Slow += other.Slow
	c.InFlight += other.InFlight
	c.Restricted += other.Restricted
	c.Failing += other.Failing
	c.Requested += other.Requested
	c.Unproven += other.Unproven
}

// check compares the scheduler's counters and the places of lanes and webhooks with the actual
// state. ripe is the time of the last Next. Items that became due later may still be among the
// timers.
func (s *Scheduler) check(t *testing.T, ripe int64) {
	s.lock()
	defer s.mu.Unlock()
	var all counts
	accounts := make(map[*account]counts)
	waiting, idle, later, unrecorded := 0, 0, 0, 0
	queued := make(map[*line]int)
	turns := make(map[*account]int)
	parkedOf := make(map[*account]int)
	webhooks := make([]*webhook, 0, len(s.webhooks)+len(s.dropped))
	for id, w := range s.webhooks {
		if w.id != id || w.dropped || s.accounts[w.account.id] != w.account {
			t.Fatalf("the entry for %s is another webhook", id)
		}
		webhooks = append(webhooks, w)
	}
	for w := range s.dropped {
		if !w.dropped || len(w.slots) == 0 {
			t.Fatalf("%s: dropped = %v with %d slots, want it forgotten", w.id, w.dropped, len(w.slots))
		}
		webhooks = append(webhooks, w)
	}
	for _, w := range webhooks {
		c := s.checkSlots(t, w)
		unrecorded += len(w.slots) - w.inFlight
		all.add(c)
		of := accounts[w.account]
		of.add(c)
		accounts[w.account] = of
		due := false
		for kind := range w.lanes {
			l := &w.lanes[kind]
			waiting += len(l.waiting)
			s.checkLane(t, l, ripe)
			if l.place >= 0 {
				later++
			}
			if l.line != nil {
				queued[l.line]++
			}
			due = due || l.place == ready
		}
		mayTurn := due && w.health != healthy && w.mayBegin()
		if (w.place != nowhere) != mayTurn || w.place >= 0 && s.queues[w.health].Heap[w.place] != w {
			t.Fatalf("%s: health %d, %d of %d in flight, place %d; want a turn: %v", w.id, w.health, w.inFlight, w.limit(), w.place, mayTurn)
		}
		if w.place >= 0 {
			turns[w.account]++
		}
		if w.place == parked {
			parkedOf[w.account]++
		}
		if w.idle != (w.isEmpty() && !w.dropped) {
			t.Fatalf("%s is idle: %v, with %d slots", w.id, w.idle, len(w.slots))
		}
		if w.idle {
			idle++
		}
		if w.cap < 1 || w.cap > s.perWebhook || w.health != w.assess() || w.health == healthy && w.late > 0 {
			t.Fatalf("%s: cap %d, health %d after %d failures, %d late", w.id, w.cap, w.health, w.failures, w.late)
		}
	}
	got := counts{s.pool.webhooks, s.pool.slow, s.inFlight, s.restricted, s.failing, s.requested, s.unproven.inFlight}
	if all != got {
		t.Fatalf("counters of all slots (-want +got):\n%s", cmp.Diff(all, got))
	}
	if waiting != s.waiting || unrecorded != s.unrecorded || later != len(s.later.Heap) {
		t.Fatalf("want %d waiting, %d unrecorded, %d later; got %d, %d and %d", waiting, unrecorded, later, s.waiting, s.unrecorded, len(s.later.Heap))
	}
	crowded := 0
	for _, a := range s.accounts {
		of := accounts[a]
		got := counts{a.webhooks, a.slow, a.inFlight, a.restricted, of.Failing, a.requested, of.Unproven}
		if of != got {
			t.Fatalf("counters of account %s (-want +got):\n%s", a.id, cmp.Diff(of, got))
		}
		if a.full() {
			crowded++
		}
		if a.inFlight > s.perAccount || a.requested > s.requestShare() {
			t.Fatalf("account %s: %d in flight, %d requested", a.id, a.inFlight, a.requested)
		}
		if parkedOf[a] > 0 && !a.full() && turns[a] < a.spare() {
			t.Fatalf("account %s: %d webhooks parked, %d with a turn, %d slots to spare", a.id, parkedOf[a], turns[a], a.spare())
		}
	}
	if crowded != s.crowdedAccounts || len(accounts) != len(s.accounts) || s.inFlight > s.slots || s.requested > s.requestSlots() {
		t.Fatalf("want %d of %d accounts full, got %d of %d; %d of %d slots, %d requested", crowded, len(accounts), s.crowdedAccounts, len(s.accounts), s.inFlight, s.slots, s.requested)
	}
	s.checkLines(t, queued)
	for _, queue := range s.queues {
		for i, w := range queue.Heap {
			if i > 0 && w.Before(queue.Heap[(i-1)/2]) {
				t.Fatalf("turn queue: %s comes before its parent", w.id)
			}
		}
	}
	for i, l := range s.later.Heap {
		if i > 0 && l.Before(s.later.Heap[(i-1)/2]) {
			t.Fatalf("timers: a lane of %s is due before its parent", l.id)
		}
	}
	for w := s.idle.first; w != nil; w = w.links.after {
		idle--
	}
	if idle != 0 {
		t.Fatalf("%d more idle webhooks than in the list", idle)
	}
	if len(s.requests.list) != len(s.requests.all) {
		t.Fatalf("%d requests in turn, %d by webhook", len(s.requests.list), len(s.requests.all))
	}
}

// checkSlots compares a webhook's counters with its slots, and returns the counts.
func (s *Scheduler) checkSlots(t *testing.T, w *webhook) (c counts) {
	inFlight, cut, late, unproven, suspends := 0, 0, 0, 0, 0
	numbers := make(map[uint64]bool)
	for _, slot := range w.slots {
		if slot.webhook != w || numbers[slot.item.number] {
			t.Fatalf("%s: delivery %d has two slots, or one of another webhook", w.id, slot.item.number)
		}
		numbers[slot.item.number] = true
		if slot.suspends {
			suspends++
		}
		if (slot.listed == &s.late) != (slot.late && slot.listed != nil) || (slot.freed || slot.cut) && slot.listed != nil {
			t.Fatalf("%s: a slot is in the wrong list: %+v", w.id, slot)
		}
		if (slot.freed || slot.cut) && (slot.requested || slot.unproven) {
			t.Fatalf("%s: an ended or canceled attempt is counted: %+v", w.id, slot)
		}
		if slot.freed {
			continue
		}
		inFlight++
		if slot.cut {
			cut++
		}
		if slot.late {
			late++
		}
		if slot.requested {
			c.Requested++
		}
		if slot.unproven {
			unproven++
		}
	}
	if inFlight != w.inFlight || cut != w.cut || late != w.late || unproven != w.unproven || suspends != w.suspends {
		t.Fatalf("%s: want %d in flight, %d cut, %d late, %d unproven, %d suspending; got %d, %d, %d, %d, %d",
			w.id, inFlight, cut, late, unproven, suspends, w.inFlight, w.cut, w.late, w.unproven, w.suspends)
	}
	if c.Requested > maxRequested {
		t.Fatalf("%s: %d requested attempts, want at most %d", w.id, c.Requested, maxRequested)
	}
	c.Webhooks, c.InFlight = 1, inFlight
	switch {
	case w.health == healthy:
		c.Unproven = unproven
	default:
		c.Restricted = w.held()
	}
	if w.health == slow {
		c.Slow = 1
	}
	if w.health.failing() {
		c.Failing = w.held()
	}
	return c
}

// checkLane checks that a lane is where arrange would put it.
func (s *Scheduler) checkLane(t *testing.T, l *lane, ripe int64) {
	ok := false
	switch {
	case l.stopped() || len(l.waiting) == 0:
		ok = l.place == nowhere
	case l.place >= 0:
		ok = s.later.Heap[l.place] == l && l.due() > ripe
	case l.due() > s.t:
	case l.health == healthy && l.mayBegin():
		bounded := l.standing != Proven && l.cap == s.firstCap && l.inFlight > 0
		ok = l.place == queued || bounded && l.place == ready
	default:
		ok = l.place == ready
	}
	if !ok || (l.place == queued) != (l.line != nil) || l.line != nil && l.account.lines[l.kind][l.standing] != l.line {
		t.Fatalf("%s: lane %d with %d waiting, health %d, %d of %d in flight, stopped %v, is at %d", l.id, l.kind, len(l.waiting), l.health, l.inFlight, l.limit(), l.stopped(), l.place)
	}
}

// checkLines checks that each line is in its run queue, unless its account is full.
func (s *Scheduler) checkLines(t *testing.T, queued map[*line]int) {
	in := make(map[*line]bool)
	for kind := range s.runQueues {
		for standing := range s.runQueues[kind] {
			for ln := s.runQueues[kind][standing].first; ln != nil; ln = ln.links.after {
				if in[ln] = true; ln.out || int(ln.kind) != kind || int(ln.standing) != standing || ln.lanes.first == nil {
					t.Fatalf("a line of %s is in the run queue of %d, %d: %+v", ln.account.id, kind, standing, ln)
				}
			}
		}
	}
	lines := 0
	for _, a := range s.accounts {
		for kind := range a.lines {
			for _, ln := range a.lines[kind] {
				if ln == nil {
					continue
				}
				lines++
				n := 0
				for l := ln.lanes.first; l != nil; l = l.links.after {
					n++
				}
				if n != queued[ln] || ln.account != a || ln.out == in[ln] || ln.out && !a.full() {
					t.Fatalf("account %s: a line of %d lanes has %d, is in its queue %v, out %v", a.id, queued[ln], n, in[ln], ln.out)
				}
			}
		}
	}
	if lines < len(in) || len(queued) > lines {
		t.Fatalf("%d lines in the run queues, %d with lanes; the accounts have %d", len(in), len(queued), lines)
	}
}

// checkNothingMissed is called after a Next that began fewer attempts than its limit allowed. It
// checks that no webhook can begin another attempt. starved is the value of the scheduler's flag
// before that Next: if Next clears the flag, unhealthy webhooks get more slots only in the
// following Next.
func (s *Scheduler) checkNothingMissed(t *testing.T, starved bool) {
	s.lock()
	defer s.mu.Unlock()
	for _, w := range s.webhooks {
		for kind := range w.lanes {
			l := &w.lanes[kind]
			if l.place == queued && l.standing == Proven && !l.account.full() {
				t.Fatalf("%s has a due item and may have an attempt, but got none", w.id)
			}
		}
		room := s.spare() > 0 && w.account.spare() > 0 && !w.account.full() && (!w.health.failing() || s.failingRoom() > 0)
		if w.place >= 0 && !w.turn.After(s.now) && room && starved == s.starved {
			t.Fatalf("%s has its turn and slots are free, but it got no attempt", w.id)
		}
	}
}

// checkEmpty checks that everything is forgotten.
func (s *Scheduler) checkEmpty(t *testing.T) {
	s.lock()
	defer s.mu.Unlock()
	left := map[string]int{
		"webhooks": len(s.webhooks), "accounts": len(s.accounts), "dropped": len(s.dropped), "later": len(s.later.Heap),
		"requests": len(s.requests.list), "requests by webhook": len(s.requests.all), "waiting": s.waiting, "unrecorded": s.unrecorded,
		"reports": len(s.inbox.list),
	}
	for _, queue := range s.queues {
		left["turns"] += len(queue.Heap)
	}
	for kind := range s.runQueues {
		for standing := range s.runQueues[kind] {
			if s.runQueues[kind][standing].first != nil {
				left["lines"]++
			}
		}
	}
	for name, list := range map[string]bool{"idle": s.idle.first != nil, "young": s.young.first != nil, "late": s.late.first != nil} {
		if list {
			left[name]++
		}
	}
	for what, n := range left {
		if n != 0 {
			t.Errorf("with nothing pending: %d %s, want 0", n, what)
		}
	}
}
