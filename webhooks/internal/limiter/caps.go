package limiter

// Caps returns how many attempts more unproven webhooks may begin now, in all, in a claim
// that asks Cap of each webhook. As long as version stays the same, no cap that was 0 is
// another. Claimed must be called after the claim.
func (l *Limiter) Caps() (unproven int, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.boundUnproven(), l.capVersion
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
	if l.unprovenLimit > 0 {
		l.starve(l.unprovenBegun >= l.unprovenLimit)
	}
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

// list notes what caps says of a webhook now.
func (l *Limiter) list(w *webhook, listed int) {
	if w.listed == 0 && listed != 0 {
		l.capVersion++
	}
	w.listed = listed
}
