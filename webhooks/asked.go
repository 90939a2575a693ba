package webhooks

// maxAsked is how many attempts that somebody asked for one webhook may have under way:
// the oldest gives way to one more.
const maxAsked = 4

// ask registers that somebody asked for the flight.
func (p *pacer) ask(w *track, f *flight) {
	var oldest *flight
	n := 0
	for _, other := range w.flights {
		if other.asked && !other.cut {
			if n++; oldest == nil || other.begun.Before(oldest.begun) {
				oldest = other
			}
		}
	}
	if n == maxAsked {
		p.cut(oldest)
	}
	f.asked, f.inTurn = true, false
	p.asked++
	w.had++ // it is no turn of the webhook's
	if w.condition == down {
		w.turn = latest(w.turn, f.begun.Add(2*probePause)) // another one may be asked for before
	}
}

// asks returns how many flights more may be ones that somebody asked for.
func (p *pacer) asks() int { return max(0, max(1, p.slots/8)-p.asked) }
