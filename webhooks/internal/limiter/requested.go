package limiter

// maxRequested is how many requested attempts one webhook may have in flight: the oldest
// gives way to one more.
const maxRequested = 4

// request registers the slot as one of a requested attempt.
func (l *Limiter) request(w *webhook, s *Slot) {
	var oldest *Slot
	n := 0
	for _, other := range w.slots {
		if other.requested && !other.cut {
			if n++; oldest == nil || other.begun.Before(oldest.begun) {
				oldest = other
			}
		}
	}
	if n == maxRequested {
		l.cut(oldest)
	}
	s.requested, s.turn = true, false
	l.requested++
	w.had++ // it is no turn of the webhook's
	if w.health == open {
		w.turn = latest(w.turn, s.begun.Add(2*requestPause)) // another one may be requested before
	}
}

// RequestRoom returns how many requested attempts more there may be: an eighth of the
// slots between them.
func (l *Limiter) RequestRoom() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requestRoom()
}

func (l *Limiter) requestRoom() int { return max(0, max(1, l.slots/8)-l.requested) }
