package scheduler

// A list is an intrusive doubly linked list.
type list[E any, P interface {
	*E
	in() *links[E]
}] struct{ first, last *E }

// links are the neighbors of an element in a list.
type links[E any] struct{ before, after *E }

func (l *list[E, P]) push(e *E) {
	*P(e).in() = links[E]{before: l.last}
	if l.last == nil {
		l.first = e
	} else {
		P(l.last).in().after = e
	}
	l.last = e
}

func (l *list[E, P]) remove(e *E) {
	at := P(e).in()
	if at.before == nil {
		l.first = at.after
	} else {
		P(at.before).in().after = at.after
	}
	if at.after == nil {
		l.last = at.before
	} else {
		P(at.after).in().before = at.before
	}
	*at = links[E]{}
}

// A runQueue holds the lines of accounts that have due items of one kind and standing, in
// round-robin order.
type runQueue = list[line, *line]

// A line holds the lanes of one account in a runQueue, in round-robin order.
type line struct {
	account  *account
	kind     uint8
	standing Standing
	lanes    list[lane, *lane]
	links    links[line]
	out      bool // temporarily not in the runQueue: attempts are being picked from it, or its account is full
}

func (l *line) in() *links[line] { return &l.links }

// enterLine appends a lane to its account's line.
func (s *Scheduler) enterLine(l *lane) {
	in := &l.account.lines[l.kind][l.standing]
	if *in == nil {
		*in = s.newLine()
		**in = line{account: l.account, kind: l.kind, standing: l.standing}
		s.runQueues[l.kind][l.standing].push(*in)
	}
	(*in).lanes.push(l)
	l.line = *in
}

// leaveLine removes a lane from its line.
func (s *Scheduler) leaveLine(l *lane) {
	in := l.line
	in.lanes.remove(l)
	l.line = nil
	if in.lanes.first == nil && !in.out {
		s.runQueues[in.kind][in.standing].remove(in)
		s.endLine(in)
	}
}

// returnLine appends a line to its runQueue, unless it is empty.
func (s *Scheduler) returnLine(l *line) {
	if l.out = false; l.lanes.first == nil {
		s.endLine(l)
		return
	}
	s.runQueues[l.kind][l.standing].push(l)
}

// maxSpares is the number of lines kept for reuse. Most accounts have due items only now and
// then.
const maxSpares = 64

func (s *Scheduler) newLine() *line {
	last := len(s.spares) - 1
	if last < 0 {
		return new(line)
	}
	l := s.spares[last]
	s.spares = s.spares[:last]
	return l
}

// endLine discards an empty line that is in no runQueue.
func (s *Scheduler) endLine(l *line) {
	l.account.lines[l.kind][l.standing] = nil
	if *l = (line{}); len(s.spares) < maxSpares {
		s.spares = append(s.spares, l)
	}
}

// pick begins attempts of healthy webhooks, live deliveries first. The standings take turns, and so
// do the accounts of a standing and the webhooks of an account. The next call resumes the rotation.
func (s *Scheduler) pick(r *round) {
	unproven := s.boundUnproven()
	for kind := range s.runQueues {
		for idle := 0; idle < int(standings) && r.limit > 0; {
			standing := s.turn
			s.turn = (s.turn + 1) % standings
			if idle++; standing != Proven && unproven <= 0 {
				continue
			}
			if s.pickOne(&s.runQueues[kind][standing], r) {
				idle = 0
				if standing != Proven {
					unproven--
				}
			}
		}
	}
	if s.unprovenLimit > 0 {
		s.starve(s.unprovenBegun >= s.unprovenLimit)
	}
}

// pickOne begins an attempt for the next account in the queue that may have an attempt, and
// reports whether it did.
func (s *Scheduler) pickOne(from *runQueue, r *round) bool {
	for from.first != nil {
		ln := from.first
		from.remove(ln)
		ln.out = true
		if ln.account.full() {
			continue // freed puts the line back later
		}
		picked := false
		for !picked && ln.lanes.first != nil && !ln.account.full() {
			picked = s.pickFrom(ln.lanes.first, r)
		}
		s.returnLine(ln)
		if picked {
			return true
		}
	}
	return false
}

// pickFrom begins an attempt of the first lane of a line, if its webhook may have an attempt, and
// reports whether it did. The lane moves to the end of its line, or leaves it.
func (s *Scheduler) pickFrom(l *lane, r *round) bool {
	s.moveLane(l, ready)
	if l.standing != Proven && l.cap == s.firstCap && l.inFlight >= s.perUnproven {
		return false // the next FreeSlot calls arrange again
	}
	slot := s.begin(l, r)
	s.arrange(l.webhook)
	return slot != nil
}

// freed puts the lines of an account that is no longer full back into their queues.
func (s *Scheduler) freed(a *account) {
	for kind := range a.lines {
		for _, ln := range a.lines[kind] {
			if ln != nil && ln.out {
				s.returnLine(ln)
			}
		}
	}
}
