package scheduler

import (
	"context"
	"slices"
	"time"
)

// An Attempt is a running attempt, which holds a slot.
type Attempt interface {
	Cancel()                        // cancels the attempt
	Ended() bool                    // reports whether it has ended
	Wait(ctx context.Context) error // waits until it has ended, or returns the error of ctx
}

// A Slot is the right to make an attempt. It belongs to the scheduler from Next to End. Afterwards
// its memory can be zeroed and reused.
type Slot struct {
	webhook   *webhook
	attempt   Attempt
	item      item
	kind      uint8 // kind of the lane
	begun     time.Time
	again     bool // the delivery was reported during the attempt; load it again
	turn      bool // begun in a turn of an unhealthy webhook; never canceled as late
	probe     bool // half-open probe
	requested bool
	unproven  bool
	cut       bool // canceled as late; no longer counts in a bulkhead
	late      bool
	second    bool // secondLatency applies
	suspends  bool // no other attempt to the webhook may begin until End
	loaded    bool // Loaded has let the attempt proceed
	freed     bool // the attempt has ended, but End was not called yet

	// Marks in the pools of all slots, of the account and of unproven webhooks, see pool.mark.
	mark, accountMark, unprovenMark int

	links  links[Slot]        // in listed
	listed *list[Slot, *Slot] // Scheduler.young or Scheduler.late; nil if neither
}

func (s *Slot) in() *links[Slot] { return &s.links }

// Webhook returns the ID of the webhook.
func (s *Slot) Webhook() string { return s.webhook.id }

// Number returns the store's number of the delivery.
func (s *Slot) Number() uint64 { return s.item.number }

// A round holds the state of one call to Next.
type round struct {
	limit int
	slot  func() (*Slot, Attempt)
}

// Next begins up to limit attempts, at most turns of them to unhealthy webhooks. Requested
// attempts do not count toward turns. For each attempt Next calls slot, which must return a zero
// Slot and the attempt that will hold it. The caller must then load each delivery and call
// Loaded. more reports that limit was reached, so that another call may begin more.
func (s *Scheduler) Next(limit, turns int, slot func() (*Slot, Attempt)) (more bool) {
	s.lock()
	defer s.mu.Unlock()
	s.loads++
	s.ripen()
	r := &round{limit: min(limit, s.free()), slot: slot}
	s.pickRequested(r)
	s.pickTurns(r, min(turns, r.limit))
	s.pick(r)
	return r.limit == 0
}

// NextTrial begins at most one attempt, to a webhook that has no other attempts.
func (s *Scheduler) NextTrial(slot func() (*Slot, Attempt)) {
	s.lock()
	defer s.mu.Unlock()
	s.loads++
	s.ripen()
	r := &round{limit: min(1, s.free()), slot: slot}
	for kind := range s.runQueues {
		for standing := range s.runQueues[kind] {
			for ln := s.runQueues[kind][standing].first; ln != nil; ln = ln.links.after {
				for l := ln.lanes.first; l != nil; l = l.links.after {
					if len(l.slots) == 0 && r.limit > 0 && !l.account.full() {
						s.begin(l, r)
						s.arrange(l.webhook)
						return
					}
				}
			}
		}
	}
	if w := s.nextTurn(s.failingRoom()); w != nil && len(w.slots) == 0 && r.limit > 0 && !w.turn.After(s.now) {
		s.beginTurn(w, r)
	}
}

// begin begins an attempt of the first item of a lane. If the delivery is already in flight, it
// drops the item and returns nil. The caller must call arrange afterwards.
func (s *Scheduler) begin(l *lane, r *round) *Slot {
	w := l.webhook
	it := s.take(l)
	if w.find(it.number) != nil {
		return nil
	}
	r.limit--
	s.served++
	slot, attempt := r.slot()
	if !w.tried && w.standing == Failing { // the webhook was failing before it was forgotten, or before this process started
		w.failures, w.cap = openAfter-1, 1
	}
	w.tried = true
	slot.webhook, slot.attempt, slot.item, slot.kind, slot.begun = w, attempt, it, l.kind, s.now
	slot.turn, slot.probe, slot.unproven, slot.second = w.health != healthy, w.health == open, w.standing != Proven, w.second
	slot.mark, slot.accountMark, slot.unprovenMark = s.mark(), w.account.mark(), s.unproven.mark()
	w.slots = append(w.slots, slot)
	w.inFlight++
	if slot.unproven {
		s.countUnproven(w, 1)
		s.unprovenBegun++
	}
	w.active = s.now
	slot.list(&s.young)
	s.inFlight++
	if w.account.inFlight++; w.account.inFlight == s.perAccount {
		s.crowdedAccounts++
	}
	s.count(w, 1, 0)
	s.overShare = s.overShare || s.exceedsShare(w.account)
	return slot
}

// find returns the slot of a delivery in flight, or nil.
func (w *webhook) find(number uint64) *Slot {
	for _, slot := range w.slots {
		if slot.item.number == number {
			return slot
		}
	}
	return nil
}

// Evidence is the information that an attempt gives about its receiver.
type Evidence uint8

// The kinds of evidence.
const (
	Unknown Evidence = iota // nothing
	Success
	Failure
)

// Observe updates the webhook's limit, breaker and latency after an attempt. If several attempts
// ended together, call Observe for all of them before FreeSlot for the first.
func (s *Scheduler) Observe(slot *Slot, evidence Evidence, took time.Duration) {
	if evidence == Unknown {
		return
	}
	s.lock()
	defer s.mu.Unlock()
	w := slot.webhook
	usual := s.observeLatency(w, took)
	s.finish(s.now)
	w.account.finish(s.now)
	if slot.unproven {
		s.unproven.finish(s.now)
	}
	switch {
	case evidence == Failure:
		s.fail(w, slot)
	case w.health == open:
		w.closeBreaker(s.now, s.perWebhook)
	default:
		w.failures = 0
		w.grow(w.inFlight >= w.cap, s.perWebhook, s.now)
		if usual {
			s.successes++
			s.usual += (took - s.usual) / time.Duration(min(s.successes, sampleSize))
		}
	}
	s.setHealth(w, w.assess())
	s.arrange(w)
}

// FreeSlot frees the slot of an attempt that has ended. If suspend is set, no other attempt to the
// webhook begins until End.
func (s *Scheduler) FreeSlot(slot *Slot, suspend bool) {
	s.lock()
	defer s.mu.Unlock()
	s.freeSlot(slot)
	s.unrecorded++
	if suspend {
		s.suspend(slot)
	}
	s.arrange(slot.webhook)
}

func (s *Scheduler) freeSlot(slot *Slot) {
	w := slot.webhook
	slot.freed = true
	slot.unlist()
	w.inFlight--
	w.active, w.since = s.now, s.t
	if slot.late {
		w.late--
	}
	s.inFlight--
	if w.account.inFlight--; w.account.inFlight == s.perAccount-1 {
		s.crowdedAccounts--
		s.freed(w.account)
	}
	if slot.cut {
		w.cut--
	} else {
		s.count(w, -1, 0)
		s.uncount(slot)
	}
	s.unpark(w.account)
}

// Suspend stops new attempts to the webhook until End.
func (s *Scheduler) Suspend(slot *Slot) {
	s.lock()
	defer s.mu.Unlock()
	s.suspend(slot)
	s.arrange(slot.webhook)
}

func (s *Scheduler) suspend(slot *Slot) {
	if !slot.suspends {
		slot.suspends = true
		slot.webhook.suspends++
		s.unpark(slot.webhook.account) // it may have been this webhook's turn
	}
}

// A Fate is the state of a delivery after an attempt.
type Fate struct {
	Pending  bool          // still pending
	After    time.Duration // until it is due again
	Attempts int           // number made so far; 0 if this attempt does not count
	Asked    bool          // the receiver asked for the wait
	Stale    bool          // another process may have changed it; load it again
}

// End ends an attempt whose slot was freed, after its result was stored or abandoned.
func (s *Scheduler) End(slot *Slot, fate Fate) {
	s.lock()
	defer s.mu.Unlock()
	s.unrecorded--
	it := slot.item
	switch {
	case slot.again, fate.Stale:
		it.due, it.attempts, it.timing = s.t, unknown, scheduled
		s.forgetSlot(slot, &it)
	case !fate.Pending:
		s.forgetSlot(slot, nil)
	case fate.Attempts == 0:
		it.due = max(it.due, s.t+fate.After.Milliseconds())
		s.forgetSlot(slot, &it)
	default:
		if fate.Asked || it.timing == early {
			it.timing = waits
		}
		it.due, it.attempts = s.t+fate.After.Milliseconds(), int32(fate.Attempts)
		s.forgetSlot(slot, &it)
	}
}

// forgetSlot removes a slot from its webhook. If the argument it is not nil, the delivery waits
// again, as this item.
func (s *Scheduler) forgetSlot(slot *Slot, it *item) {
	w := slot.webhook
	i := slices.Index(w.slots, slot)
	last := len(w.slots) - 1
	w.slots[i] = w.slots[last]
	w.slots[last] = nil
	w.slots = w.slots[:last]
	if slot.suspends {
		w.suspends--
	}
	if it != nil {
		s.put(&w.lanes[slot.kind], *it)
	}
	s.arrange(w)
	s.noteIdle(w)
}

// cutShort cancels an attempt to free its slot.
func (s *Scheduler) cutShort(slot *Slot) {
	slot.unlist()
	slot.cut = true
	slot.webhook.cut++
	s.count(slot.webhook, -1, 0)
	s.uncount(slot)
	slot.attempt.Cancel()
}

// uncount stops counting a slot as requested and as unproven.
func (s *Scheduler) uncount(slot *Slot) {
	if slot.requested {
		s.requested--
		slot.webhook.account.requested--
	}
	if slot.unproven {
		s.countUnproven(slot.webhook, -1)
	}
	slot.requested, slot.unproven = false, false
}

// list moves the slot to the end of a list.
func (s *Slot) list(l *list[Slot, *Slot]) {
	s.unlist()
	s.listed = l
	l.push(s)
}

func (s *Slot) unlist() {
	if s.listed != nil {
		s.listed.remove(s)
		s.listed = nil
	}
}

// CancelAll cancels all attempts in flight.
func (s *Scheduler) CancelAll() { s.cancel("", "", true) }

// Evict cancels the attempts in flight to the webhook, or to all webhooks of the account, and
// waits until they have ended. If ctx ends first, it returns the error of ctx.
func (s *Scheduler) Evict(ctx context.Context, webhookID, account string) error {
	for _, attempt := range s.cancel(webhookID, account, false) {
		if err := attempt.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scheduler) cancel(webhookID, account string, all bool) (attempts []Attempt) {
	s.lock()
	defer s.mu.Unlock()
	cancel := func(w *webhook) {
		if !all && w.id != webhookID && w.account.id != account {
			return
		}
		for _, slot := range w.slots {
			if !slot.freed {
				slot.attempt.Cancel()
				attempts = append(attempts, slot.attempt)
			}
		}
	}
	for w := range s.dropped {
		cancel(w)
	}
	if w := s.webhooks[webhookID]; w != nil {
		cancel(w)
	} else if webhookID == "" {
		for _, w := range s.webhooks {
			cancel(w)
		}
	}
	return attempts
}
