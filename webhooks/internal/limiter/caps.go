package limiter

import "slices"

// Caps say how many attempts each webhook may have in flight, those that claim turns
// excepted.
type Caps struct {
	Each      int            // of a webhook that is not in ByWebhook
	ByWebhook map[string]int // 0 for those that wait for their turn

	// Reopened are the webhooks whose cap was 0 in the last claim and no longer is. Nil
	// says nothing of any: all have to be looked at.
	Reopened []string

	// Version changes whenever a cap that was 0 no longer is.
	Version uint64

	// Unproven is how many attempts more unproven webhooks may begin, in all.
	Unproven int

	// MaxUnproven is how many attempts more unproven webhooks may begin, in all; below 0:
	// none, 0: any number. PerUnproven is Each for those, if that is less; 0: it is Each.
	MaxUnproven, PerUnproven int
}

// Caps returns what a claim may begin now. Claimed must be called after it.
func (l *Limiter) Caps() Caps {
	l.mu.Lock()
	defer l.mu.Unlock()
	caps := Caps{Each: l.firstCap, ByWebhook: l.caps, Reopened: l.reopened, Version: l.capVersion}
	caps.MaxUnproven, caps.PerUnproven = l.unprovenCaps()
	caps.Unproven, l.perUnproven = max(0, caps.MaxUnproven), l.firstCap
	l.unprovenBegun, l.unprovenLimit = 0, 0
	if caps.PerUnproven == 1 {
		l.perUnproven, l.unprovenLimit = 1, caps.Unproven
	}
	return caps
}

// Cap returns how many attempts a webhook may have in flight in a claim of Caps.
func (l *Limiter) Cap(webhook string, proven bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap, ok := l.caps[webhook]; ok {
		return cap
	}
	if !proven {
		return l.perUnproven
	}
	return l.firstCap
}

// TurnCap returns how many attempts a webhook may have in flight in a claim of Turns.
func (l *Limiter) TurnCap(webhook string, _ bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.webhooks[webhook]; w != nil && w.given > 0 {
		return w.had + w.given
	}
	return 0
}

// IdleCap returns 1 for a webhook with nothing in flight or to be recorded, and 0 for
// others.
func (l *Limiter) IdleCap(webhook string, _ bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.webhooks[webhook]; w != nil && !w.isIdle() {
		return 0
	}
	return 1
}

// Claimed ends a claim of what Caps returned, after what it got has begun.
func (l *Limiter) Claimed(err error) {
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopened = slices.Grow(l.reopened[:0], 1) // not nil any more
	if l.unprovenLimit > 0 {
		l.starve(l.unprovenBegun >= l.unprovenLimit)
	}
}

// Idle returns caps that keep a claim to webhooks with nothing in flight or to be
// recorded. Such a claim is no claim of Caps.
func (l *Limiter) Idle() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	caps := make(map[string]int)
	for id, w := range l.webhooks {
		if !w.isIdle() {
			caps[id] = 0
		}
	}
	l.reopened = nil // the caps of that claim are others
	return caps
}

// refresh makes claims find the webhook as it is now.
func (l *Limiter) refresh(w *webhook) {
	listed := w.cap
	switch queue := &l.queues[w.health]; {
	case w.suspended > 0:
		listed = 0
		queue.remove(w)
	case w.health != healthy:
		listed = 0 // it waits for its turn
		if len(w.slots) < w.limit() {
			queue.put(w)
		} else {
			queue.remove(w)
		}
	case w.cap == l.firstCap:
		listed = unlisted
	}
	switch {
	case listed == w.listed:
	case listed == unlisted:
		delete(l.caps, w.id)
	default:
		l.caps[w.id] = listed
	}
	l.list(w, listed)
}

// maxReopened bounds Caps.Reopened, should the store not answer for long.
const maxReopened = 4096

// list notes what caps says of a webhook now.
func (l *Limiter) list(w *webhook, listed int) {
	if w.listed == 0 && listed != 0 {
		l.capVersion++
	}
	if w.listed == 0 && listed != 0 && l.reopened != nil {
		if l.reopened = append(l.reopened, w.id); len(l.reopened) > maxReopened {
			l.reopened = nil
		}
	}
	w.listed = listed
}
