package queue

import "github.com/storageapi/storageapi/webhooks"

// A round is a claim from the runQueues.
type round struct {
	*webhooks.Claim
	t        int64
	claimed  []Claimed
	unproven int // how many more may be of unproven webhooks

	// In line, but not for this claim.
	full      []*lane
	fullLines []*line // whose account has as many leases as it may
}

// claimTurns claims from the runQueues, the live ones first. The standings take turns,
// of a standing its accounts, and of an account its webhooks; over several claims,
// too.
func (q *Queue) claimTurns(claimed []Claimed, t int64, claim *webhooks.Claim) []Claimed {
	r := round{Claim: claim, t: t, claimed: claimed, unproven: claim.Limit - claim.ProvenOnly}
	for kind := range q.runQueues {
		for idle := 0; idle < int(standings) && len(r.claimed) < claim.Limit; {
			s := q.turn
			q.turn = (q.turn + 1) % standings
			if idle++; s != Proven && r.unproven <= 0 {
				continue
			}
			if q.claimOne(&q.runQueues[kind][s], &r) {
				idle = 0
				if s != Proven {
					r.unproven--
				}
			}
		}
		for _, l := range r.fullLines {
			q.runQueues[kind][l.standing].push(l)
		}
		for _, l := range r.full {
			q.enter(l)
		}
		clear(r.fullLines)
		r.full, r.fullLines = r.full[:0], r.fullLines[:0]
	}
	return r.claimed
}

// claimOne claims from the next account in the runQueue that has something for this
// claim, and reports whether there was one.
func (q *Queue) claimOne(from *runQueue, r *round) bool {
	return from.takeTurns(func(line *line) (claims, stays bool) {
		if line.account.full(r.Claim) {
			r.fullLines = append(r.fullLines, line)
			return false, false
		}
		claims = line.lanes.takeTurns(func(l *lane) (claims, stays bool) { return q.claimFrom(l, r) })
		if stays = line.lanes.first != nil; !stays {
			q.endLine(line)
		}
		return claims, stays
	})
}

// claimFrom claims from a lane that was taken out of its line, if that has something for
// this claim, and reports whether it goes back.
func (q *Queue) claimFrom(l *lane, r *round) (claims, stays bool) {
	if !l.has(r.t) {
		l.line, l.place = nil, nowhere
		q.schedule(l)
		return false, false
	}
	switch limit := l.cap(r.Claim); {
	case limit <= 0:
		q.suspend(l)
	case l.leased >= limit || l.account.full(r.Claim):
		l.line, l.place = nil, nowhere
		r.full = append(r.full, l)
	default:
		c, ok := q.lease(l, r.t+r.Lease.Milliseconds())
		if ok {
			r.claimed = append(r.claimed, c)
		}
		return ok, true
	}
	return false, false
}
