package queue

import "github.com/storageapi/storageapi/webhooks"

// A Standing is what the store's records tell of a webhook's receiver. Each has
// rings of its own, and the rings take turns: however many webhooks of one standing
// have something due, those of another do not wait behind them.
type Standing uint8

// The standings. Unproven webhooks, as [webhooks.Claim] has them, are all but the
// Proven.
const (
	Untried Standing = iota // it has taken nothing yet
	Failing                 // all attempts since some time have failed
	Proven
	standings
)

// StandingOf returns the standing of a webhook.
func StandingOf(w *webhooks.Webhook) Standing {
	switch {
	case w.Proven():
		return Proven
	case !w.FailingSince.IsZero():
		return Failing
	}
	return Untried
}

// SetStanding notes the standing of a webhook that is in the queue.
func (q *Queue) SetStanding(webhook string, s Standing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.endpoints.all[webhook]
	if e == nil || e.standing == s {
		return
	}
	e.standing = s
	for kind := range e.lanes {
		switch l := &e.lanes[kind]; l.place {
		case inRing:
			q.exit(l)
			q.enter(l)
		case suspended: // its cap may be another
			q.suspended.remove(l)
			q.enter(l)
		}
	}
}

// A ring is the accounts that have something due of one kind and standing, in turn.
type ring struct{ first, last *line }

// A line is the lanes of one account in a ring, in turn.
type line struct {
	account       *account
	kind          uint8
	standing      Standing
	first, last   *lane
	before, after *line // its neighbours in the ring
}

func (r *ring) push(l *line) {
	l.before, l.after = r.last, nil
	if r.last == nil {
		r.first = l
	} else {
		r.last.after = l
	}
	r.last = l
}

func (r *ring) remove(l *line) {
	if l.before == nil {
		r.first = l.after
	} else {
		l.before.after = l.after
	}
	if l.after == nil {
		r.last = l.before
	} else {
		l.after.before = l.before
	}
	l.before, l.after = nil, nil
}

func (l *line) push(a *lane) {
	a.line, a.place, a.before, a.after = l, inRing, l.last, nil
	if l.last == nil {
		l.first = a
	} else {
		l.last.after = a
	}
	l.last = a
}

func (l *line) remove(a *lane) {
	if a.before == nil {
		l.first = a.after
	} else {
		a.before.after = a.after
	}
	if a.after == nil {
		l.last = a.before
	} else {
		a.after.before = a.before
	}
	a.line, a.place, a.before, a.after = nil, nowhere, nil, nil
}

// enter puts a lane that is nowhere at the end of its account's line, and that in its
// ring if it is not.
func (q *Queue) enter(l *lane) {
	in := &l.account.lines[l.kind][l.standing]
	if *in == nil {
		*in = q.newLine()
		**in = line{account: l.account, kind: l.kind, standing: l.standing}
		q.rings[l.kind][l.standing].push(*in)
	}
	(*in).push(l)
}

// exit takes a lane out of its line, and that out of its ring if it is empty then.
func (q *Queue) exit(l *lane) {
	in := l.line
	if in.remove(l); in.first == nil {
		q.rings[in.kind][in.standing].remove(in)
		q.endLine(in)
	}
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

// endLine ends a line that is empty and in no ring.
func (q *Queue) endLine(l *line) {
	l.account.lines[l.kind][l.standing] = nil
	if *l = (line{}); len(q.spare) < maxSpare {
		q.spare = append(q.spare, l)
	}
}

// A round is a claim from the rings.
type round struct {
	*webhooks.Claim
	t        int64
	claimed  []Claimed
	unproven int // how many more may be of unproven webhooks

	// In line, but not for this claim.
	full      []*lane
	fullLines []*line // whose account has as many leases as it may
}

// claimTurns claims from the rings, the live ones first. The standings take turns,
// of a standing its accounts, and of an account its webhooks; over several claims,
// too.
func (q *Queue) claimTurns(claimed []Claimed, t int64, claim *webhooks.Claim) []Claimed {
	r := round{Claim: claim, t: t, claimed: claimed, unproven: claim.Limit - claim.ProvenOnly}
	for kind := range q.rings {
		for idle := 0; idle < int(standings) && len(r.claimed) < claim.Limit; {
			s := q.turn
			q.turn = (q.turn + 1) % standings
			if idle++; s != Proven && r.unproven <= 0 {
				continue
			}
			if q.claimOne(&q.rings[kind][s], &r) {
				idle = 0
				if s != Proven {
					r.unproven--
				}
			}
		}
		for _, l := range r.fullLines {
			q.rings[kind][l.standing].push(l)
		}
		for _, l := range r.full {
			q.enter(l)
		}
		clear(r.fullLines)
		r.full, r.fullLines = r.full[:0], r.fullLines[:0]
	}
	return r.claimed
}

// claimOne claims from the next account in the ring that has something for this
// claim, and reports whether there was one.
func (q *Queue) claimOne(from *ring, r *round) bool {
	for from.first != nil {
		line := from.first
		from.remove(line)
		if line.account.full(r.Claim) {
			r.fullLines = append(r.fullLines, line)
			continue
		}
		claimed := q.claimFrom(line, r)
		if line.first == nil {
			q.endLine(line)
		} else {
			from.push(line)
		}
		if claimed {
			return true
		}
	}
	return false
}

// claimFrom claims from the next lane in the line that has something for this claim.
func (q *Queue) claimFrom(line *line, r *round) bool {
	for line.first != nil {
		l := line.first
		line.remove(l)
		if !l.has(r.t) {
			q.schedule(l)
			continue
		}
		switch limit := l.cap(r.Claim); {
		case limit <= 0:
			q.suspend(l)
		case l.leased >= limit || l.account.full(r.Claim):
			r.full = append(r.full, l)
		default:
			r.claimed = append(r.claimed, q.lease(l, r.t+r.Lease.Milliseconds()))
			line.push(l)
			return true
		}
	}
	return false
}
