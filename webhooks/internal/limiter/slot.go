package limiter

import (
	"container/list"
	"context"
	"time"
)

// An Attempt is what takes a slot.
type Attempt interface {
	Cancel()                        // makes it end
	Ended() bool                    // whether it has
	Wait(ctx context.Context) error // returns when it has, or ctx
}

// A Slot is held by an attempt. It belongs to the limiter from Begin to Recorded; the
// zero Slot can be used again after that.
type Slot struct {
	webhook   *webhook
	attempt   Attempt
	begun     time.Time
	turn      bool // begun in a turn: never cut short
	probe     bool // half-open probe
	requested bool
	unproven  bool
	cut       bool // cut short: it counts in no bulkhead any more
	late      bool
	suspends  bool          // no other to its webhook begins before it is recorded
	rest      time.Duration // what Observe returned

	// How many attempts have finished, of all, of its account and of unproven webhooks,
	// when all that was begun before it has.
	mark, accountMark, unprovenMark int

	index   int           // in webhook.slots
	element *list.Element // of Limiter.young or Limiter.late
}

// An Outcome is what an attempt shows of its receiver.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // neither a merit of the receiver's nor its fault
	Success
	Failure
)

// A Start describes an attempt that begins.
type Start struct {
	Webhook, Account string
	At               time.Time
	Turn             bool // it was claimed by what Turns returned
	Requested        bool // someone asked for it: it takes no turn
	Proven           bool // an earlier attempt to the webhook has succeeded
	Failing          bool // the attempts since the last success have failed
}

// Begin takes a slot, which must be the zero Slot, for an attempt.
func (l *Limiter) Begin(s *Slot, attempt Attempt, start Start) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.webhook(start)
	s.webhook, s.attempt, s.begun, s.turn, s.probe = w, attempt, start.At, start.Turn, w.health == open
	s.mark, s.accountMark, s.unprovenMark = l.mark(), w.account.mark(), l.unproven.mark()
	s.index = len(w.slots)
	w.slots = append(w.slots, s)
	if start.Requested {
		l.request(w, s)
	}
	if s.unproven = !start.Proven; s.unproven {
		l.countUnproven(w, 1)
		l.unprovenBegun++
	}
	w.active = s.begun
	s.element = l.young.PushBack(s)
	l.inFlight++
	if w.account.inFlight++; w.account.inFlight == l.perAccount {
		l.crowdedAccounts++
	}
	l.count(w, 1, 0)
	l.refresh(w)
	l.overShare = l.overShare || l.exceedsShare(w.account)
}

// Observe learns from how an attempt ended and how long it took. If that shows that the
// receiver is down it returns for how long to leave it alone. Of attempts that ended
// together, all are observed before the first is released.
func (l *Limiter) Observe(s *Slot, outcome Outcome, took time.Duration, now time.Time) (rest time.Duration) {
	if outcome == Unknown {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := s.webhook
	usual := l.observeLatency(w, took, outcome, now)
	w.finished++
	l.finish(now)
	w.account.finish(now)
	if s.unproven {
		l.unproven.finish(now)
	}
	switch {
	case outcome == Failure:
		rest = l.fail(w, s, now) * 7 / 8 // it begins later, and has ended when it is the webhook's turn
		s.rest = rest
	case w.health == open:
		w.closeBreaker(now, l.perWebhook)
	default:
		w.failures = 0
		w.grow(len(w.slots) >= w.cap, l.perWebhook, now)
		if usual {
			l.successes++
			l.usual += (took - l.usual) / time.Duration(min(l.successes, sampleSize))
		}
	}
	l.setHealth(w, w.assess())
	return rest
}

// Release frees the slot of an attempt that has ended.
func (l *Limiter) Release(s *Slot, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := s.webhook
	l.unlist(s)
	w.remove(s)
	w.active = now
	if s.late {
		w.late--
	}
	if w.account.inFlight == l.perAccount {
		l.crowdedAccounts--
	}
	l.inFlight--
	w.account.inFlight--
	if s.cut {
		w.cut--
		l.acquit(w)
	} else {
		l.count(w, -1, 0)
		l.uncount(s)
	}
	l.unrecorded++
	w.unrecorded++
	l.refresh(w)
}

// Suspend lets no other attempt to the webhook begin until this one, which was released,
// is recorded.
func (l *Limiter) Suspend(s *Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.suspends {
		s.suspends = true
		s.webhook.suspended++
	}
	l.refresh(s.webhook)
	l.unpark(s.webhook.account) // it may have been its turn
}

// Recorded forgets an attempt that was released: its result is stored, or given up. If
// that took long the receiver is left alone until later than Observe knew, for the rest
// counts from then: a turn before its end would be in vain, and the next one a pause later.
func (l *Limiter) Recorded(s *Slot, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := s.webhook
	l.unrecorded--
	w.unrecorded--
	if s.suspends {
		w.suspended--
	}
	if s.rest > 0 && w.health == open && !w.trusted {
		w.turn = latest(w.turn, now.Add(s.rest))
	}
	if s.suspends || s.rest > 0 {
		l.refresh(w)
	}
}

// cut cuts an attempt short, so that its slot becomes free.
func (l *Limiter) cut(s *Slot) {
	l.unlist(s)
	s.cut = true
	s.webhook.cut++
	l.count(s.webhook, -1, 0)
	l.uncount(s)
	s.attempt.Cancel()
}

// uncount ends that a slot counts as one of a requested attempt, or of an unproven
// webhook.
func (l *Limiter) uncount(s *Slot) {
	if s.requested {
		l.requested--
		s.webhook.account.requested--
	}
	if s.unproven {
		l.countUnproven(s.webhook, -1)
	}
	s.requested, s.unproven = false, false
}
