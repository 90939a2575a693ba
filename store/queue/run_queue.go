package queue

// A list is one of elements that know their neighbours in it.
type list[E any, P interface {
	*E
	in() *links[E]
}] struct{ first, last *E }

// Links are the neighbours of an element of a list.
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

// takeTurns takes elements from the front until one claims something, and reports whether
// one did. Those that stay go to the end.
func (l *list[E, P]) takeTurns(turn func(*E) (claims, stays bool)) bool {
	for l.first != nil {
		e := l.first
		l.remove(e)
		claims, stays := turn(e)
		if stays {
			l.push(e)
		}
		if claims {
			return true
		}
	}
	return false
}

// A runQueue is the accounts that have something due of one kind and standing, in turn.
type runQueue = list[line, *line]

// A line is the lanes of one account in a runQueue, in turn.
type line struct {
	account  *account
	kind     uint8
	standing Standing
	lanes    list[lane, *lane]
	links    links[line]
}

func (l *line) in() *links[line] { return &l.links }
func (l *lane) in() *links[lane] { return &l.links }

// enter puts a lane that is nowhere at the end of its account's line, and that in its
// runQueue if it is not.
func (q *Queue) enter(l *lane) {
	in := &l.account.lines[l.kind][l.standing]
	if *in == nil {
		*in = q.newLine()
		**in = line{account: l.account, kind: l.kind, standing: l.standing}
		q.runQueues[l.kind][l.standing].push(*in)
	}
	(*in).lanes.push(l)
	l.line, l.place = *in, queued
}

// exit takes a lane out of its line, and that out of its runQueue if it is empty then.
func (q *Queue) exit(l *lane) {
	in := l.line
	in.lanes.remove(l)
	l.line, l.place = nil, nowhere
	if in.lanes.first == nil {
		q.runQueues[in.kind][in.standing].remove(in)
		q.endLine(in)
	}
}

// suspend keeps a lane, of a webhook whose cap is 0, from being looked at until that
// changes.
func (q *Queue) suspend(l *lane) {
	q.suspended.push(l)
	l.line, l.place, l.asked = nil, suspended, q.capRound
}

// resume has a suspended lane looked at again.
func (q *Queue) resume(l *lane) {
	q.suspended.remove(l)
	q.enter(l)
	l.since = q.asked
}

// maxSpare is how many lines are kept to be used again: most are of accounts that have
// something due now and then.
const maxSpare = 64

func (q *Queue) newLine() *line {
	last := len(q.spare) - 1
	if last < 0 {
		return new(line)
	}
	l := q.spare[last]
	q.spare = q.spare[:last]
	return l
}

// endLine ends a line that is empty and in no runQueue.
func (q *Queue) endLine(l *line) {
	l.account.lines[l.kind][l.standing] = nil
	if *l = (line{}); len(q.spare) < maxSpare {
		q.spare = append(q.spare, l)
	}
}
