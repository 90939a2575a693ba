package limiter

// Caps begins a claim that asks Cap of each webhook. It returns how many attempts more of
// unproven webhooks may begin, in all; and a version: as long as that stays the same, no
// cap that was 0 has become another. Claimed must be called after the claim.
func (l *Limiter) Caps() (unproven int, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.boundUnproven(), l.capVersion
}

// Cap returns how many attempts a webhook may have in flight in a claim of Caps.
func (l *Limiter) Cap(webhook string, proven bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch w := l.webhooks[webhook]; {
	case w != nil && w.waits:
		return 0
	case w != nil && w.cap != l.firstCap:
		return w.cap
	case !proven:
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

// Claimed ends a claim of Caps, after what it got has begun.
func (l *Limiter) Claimed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.unprovenLimit > 0 {
		l.starve(l.unprovenBegun >= l.unprovenLimit)
	}
}

// refresh makes claims find the webhook as it is now.
func (l *Limiter) refresh(w *webhook) {
	if queue := &l.queues[w.health]; w.suspended == 0 && w.health != healthy && len(w.slots) < w.limit() {
		queue.put(w)
	} else {
		queue.remove(w)
	}
	l.setWaits(w, w.suspended > 0 || w.health != healthy)
}

// setWaits says whether a webhook has a Cap of 0: it is suspended, or waits for its turn.
func (l *Limiter) setWaits(w *webhook, waits bool) {
	if w.waits && !waits {
		l.capVersion++
	}
	w.waits = waits
}
