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
	w.account.requested++
	l.overShare = l.overShare || l.requestsCrowded(w.account)
	w.had++ // it is no turn of the webhook's
	if w.health == open {
		w.turn = latest(w.turn, s.begun.Add(2*requestPause)) // another one may be requested before
	}
}

// RequestRoom returns how many more requested attempts there may be: an eighth of the
// slots are for them.
func (l *Limiter) RequestRoom() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requestRoom()
}

// RequestRoomOf returns how many of them the account may have: a quarter of all are its share, so
// that one account's requests to receivers that hang do not hold up those of others.
func (l *Limiter) RequestRoomOf(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	share := l.requestShare()
	if a := l.accounts[id]; a != nil {
		share -= a.requested
	}
	return max(0, share)
}

func (l *Limiter) requestRoom() int { return max(0, l.requestSlots()-l.requested) }

func (l *Limiter) requestSlots() int { return max(1, l.slots/8) }

func (l *Limiter) requestShare() int { return max(1, l.requestSlots()/4) }

// requestsCrowded reports whether the account can have no more requested attempts.
func (l *Limiter) requestsCrowded(a *account) bool {
	return l.requestRoom() == 0 || a.requested >= l.requestShare()
}
