package scheduler

import (
	"slices"
	"sync"
	"time"
)

// An inbox queues reports that arrive while another call holds Scheduler.mu. The next call
// applies them, so the store's commits never wait for the scheduler.
type inbox struct {
	sync.Mutex
	list []func()
}

// report applies a report, or queues it while mu is held. Before it queues a report it calls keep,
// which must copy the report's arguments.
func (s *Scheduler) report(keep, apply func()) {
	if s.mu.TryLock() {
		s.locked()
		apply()
		s.mu.Unlock()
	} else {
		if keep != nil {
			keep()
		}
		s.inbox.Lock()
		s.inbox.list = append(s.inbox.list, apply)
		s.inbox.Unlock()
	}
	if s.wake != nil {
		s.wake()
	}
}

// drain applies the queued reports.
func (s *Scheduler) drain() {
	s.inbox.Lock()
	list := s.inbox.list
	s.inbox.list = nil
	s.inbox.Unlock()
	for _, apply := range list {
		apply()
	}
}

// A Pending is a pending delivery as a store reports it.
type Pending struct {
	Webhook   Webhook // assumed to be on
	Group     int32
	Number    uint64
	Due       time.Time
	Attempts  int  // number of attempts made so far
	Recovered bool // attempt it after all live deliveries
	First     bool // attempt it before all other deliveries of its webhook
}

// Add adds pending deliveries. If a delivery is in flight, it is loaded again afterwards. If a
// delivery is added twice, it is still attempted once, because the second load finds that it is
// settled or due later.
func (s *Scheduler) Add(list []Pending) {
	s.report(func() { list = slices.Clone(list) }, func() {
		for i := range list {
			s.add(&list[i])
		}
	})
}

func (s *Scheduler) add(p *Pending) {
	w := s.webhookOf(&p.Webhook, p.Group)
	if p.Webhook.Version > w.version && p.Webhook.On && s.pauseEnd(p.Webhook.PausedUntil) == 0 {
		s.learn(w, &p.Webhook)
		w.hinted = true
	}
	if w.group != p.Group {
		w.group, w.paused = p.Group, s.paused[p.Group]
	}
	if slot := w.find(p.Number); slot != nil {
		slot.again = true
		return
	}
	l := &w.lanes[live]
	if p.Recovered {
		l = &w.lanes[recovered]
	}
	it := item{number: p.Number, due: s.dueAt(p.Due), attempts: int32(p.Attempts)}
	if p.First {
		it.due = l.firstDue(it.due)
	}
	s.put(l, it)
}

// Nudge makes a waiting delivery due now and moves it ahead of its webhook's other deliveries. A
// delivery in flight is loaded again afterwards. Nudge ignores an unknown delivery, because the
// store is then about to add it.
func (s *Scheduler) Nudge(webhookID string, number uint64) {
	s.report(nil, func() {
		w := s.webhooks[webhookID]
		if w == nil {
			return
		}
		if slot := w.find(number); slot != nil {
			slot.again, w.nudged = true, true
			return
		}
		for _, it := range s.remove(w, func(it item) bool { return it.number == number }) {
			it.due, it.timing = w.lanes[live].firstDue(s.t), scheduled
			s.put(&w.lanes[live], it)
		}
	})
}

// Update sets a webhook's record, unless the scheduler already has a later version.
func (s *Scheduler) Update(r Webhook) {
	s.report(nil, func() {
		if w := s.webhooks[r.ID]; w != nil {
			s.learn(w, &r)
		}
	})
}

// Probe requests an attempt even if the receiver may be down. After a Nudge of a delivery in flight
// it does nothing, because the next attempt of that delivery is the probe.
func (s *Scheduler) Probe(webhookID string) {
	s.report(nil, func() {
		if w := s.webhooks[webhookID]; w != nil && w.nudged {
			w.nudged = false
		} else {
			s.request(webhookID)
		}
	})
}

// Forget forgets one webhook, all webhooks of an account, or all webhooks of a group. Only the
// first argument that is not zero counts. Forgetting a group also ends its Pause.
func (s *Scheduler) Forget(webhookID, account string, group int32) {
	s.report(nil, func() {
		switch {
		case webhookID != "":
			if w := s.webhooks[webhookID]; w != nil {
				s.drop(w)
			}
		case account != "":
			s.dropAll(func(w *webhook) bool { return w.account.id == account })
		default:
			s.dropAll(func(w *webhook) bool { return w.group == group })
			delete(s.paused, group)
		}
	})
}

func (s *Scheduler) dropAll(matches func(*webhook) bool) {
	for _, w := range s.webhooks {
		if matches(w) {
			s.drop(w)
		}
	}
}

// Ended removes deliveries of a webhook that are no longer pending in the store.
func (s *Scheduler) Ended(webhookID string, numbers []uint64) {
	ended := make(map[uint64]bool, len(numbers))
	for _, n := range numbers {
		ended[n] = true
	}
	s.report(nil, func() {
		if w := s.webhooks[webhookID]; w != nil {
			s.remove(w, func(it item) bool { return ended[it.number] })
			s.noteIdle(w)
		}
	})
}

// Pause stops new attempts in the groups until Forget is called for them.
func (s *Scheduler) Pause(groups []int32) {
	groups = slices.Clone(groups)
	s.report(nil, func() {
		for _, g := range groups {
			if s.paused == nil {
				s.paused = make(map[int32]bool)
			}
			s.paused[g] = true
		}
		for _, w := range s.webhooks {
			if s.paused[w.group] && !w.paused {
				w.paused = true
				s.arrange(w)
			}
		}
	})
}

// UnderWay returns the number of attempts between Next and End, by group.
func (s *Scheduler) UnderWay() map[int32]int {
	s.lock()
	defer s.mu.Unlock()
	n := make(map[int32]int)
	for _, w := range s.webhooks {
		if len(w.slots) > 0 {
			n[w.group] += len(w.slots)
		}
	}
	return n
}

// Trouble records err as the reason why the store cannot read pending deliveries. Nil means that
// the store has reported all pending deliveries.
func (s *Scheduler) Trouble(err error) {
	s.report(nil, func() { s.trouble = err })
}

// Clear forgets all waiting deliveries, which the store must report again. Attempts in flight
// continue. err says why the store reports nothing.
func (s *Scheduler) Clear(err error) {
	s.report(nil, func() {
		s.trouble, s.paused = err, nil
		for _, w := range s.webhooks {
			s.remove(w, func(item) bool { return true })
			w.paused = false
			s.noteIdle(w)
		}
	})
}

// A LoadState is the state of a delivery in the store.
type LoadState uint8

// The states.
const (
	Gone    LoadState = iota // not pending
	Ready                    // attempt it
	Passive                  // keep it until its webhook changes
	Unread                   // load it again soon
)

// A Loaded is a delivery as loaded from the store.
type Loaded struct {
	State    LoadState
	Webhook  *Webhook // nil if it could not be read
	Attempts int      // number of attempts made so far
	Due      time.Time
}

const (
	// dueTolerance is the accepted difference between the due time that a store reports and the due
	// time that it loads.
	dueTolerance = 2 * time.Millisecond

	minUnread = 50 * time.Millisecond // first pause before an unread delivery is loaded again; the pauses double
	maxUnread = time.Second
)

// Loaded decides whether to make the attempt that holds the slot, given the delivery as loaded from
// the store. It returns the webhook's record for the attempt. If ok is false, the attempt must not
// be made, and Loaded has freed the slot.
func (s *Scheduler) Loaded(slot *Slot, found *Loaded) (record any, ok bool) {
	s.lock()
	defer s.mu.Unlock()
	w, it, known := slot.webhook, slot.item, found.Webhook
	if known != nil && !w.dropped {
		s.learn(w, known)
	}
	// The reported version is later than the loaded version if the load preceded the report, or if
	// the webhook was deleted after the report and imported again.
	outdated := known != nil && w.hinted && known.Version < w.version
	passive := found.State == Passive || known != nil && s.pauseEnd(known.PausedUntil) > 0
	pending := &it
	switch {
	case w.dropped, found.State == Gone:
		pending = nil
	case found.State == Unread, outdated && passive:
		w.loadAt = s.t + s.unreadPause(w).Milliseconds()
	case passive, w.stopped(), w.until > s.t:
	case found.Due.After(s.now.Add(dueTolerance)) && (int32(found.Attempts) != it.attempts || it.timing != early):
		// The report was out of date. The receiver may have asked for this wait.
		if it = (item{number: it.number, due: s.dueAt(found.Due), attempts: int32(found.Attempts), timing: waits}); w.hasDouble(it.number) {
			pending = nil
		}
	default:
		w.unread = 0
		slot.loaded, slot.item.attempts = true, int32(found.Attempts)
		if outdated {
			return known.Record, true
		}
		return w.record, true
	}
	if slot.again && !w.dropped {
		pending = &slot.item
		pending.due, pending.attempts, pending.timing = s.t, unknown, scheduled
	}
	if slot.requested {
		s.request(w.id).from = time.Time{} // skip the pause, since no attempt was made
	}
	since := w.since
	s.freeSlot(slot)
	w.since = since // the webhook still waits
	s.forgetSlot(slot, pending)
	return nil, false
}

// maxSearched is the largest backlog of a webhook that is searched for duplicates.
const maxSearched = 4096

// hasDouble reports whether the delivery is already waiting. It does not search a large backlog.
func (w *webhook) hasDouble(number uint64) bool {
	return len(w.lanes[live].waiting)+len(w.lanes[recovered].waiting) <= maxSearched && w.has(number)
}

// unreadPause returns how long to wait before loading an unread delivery again. The first retry is
// immediate, because the previous load may only have reached the store's limit on deliveries per
// load.
func (s *Scheduler) unreadPause(w *webhook) time.Duration {
	if w.unreadIn != s.loads {
		w.unread, w.unreadIn = w.unread+1, s.loads
	}
	if w.unread < 2 {
		return 0
	}
	return min(minUnread<<min(w.unread-2, 10), maxUnread)
}

// Record returns the latest record of the slot's webhook, or nil if the webhook was forgotten.
func (s *Scheduler) Record(slot *Slot) any {
	s.lock()
	defer s.mu.Unlock()
	if slot.webhook.dropped {
		return nil
	}
	return slot.webhook.record
}
