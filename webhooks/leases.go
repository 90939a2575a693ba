package webhooks

import "time"

// finishedLeases are those of attempts that have ended and are not recorded yet. They
// must not run out meanwhile, however long the store fails: what was sent would be sent
// again. The zero finishedLeases is none.
type finishedLeases struct {
	attempts []*inflight // in no order
	fresh    []uint64    // tokens that no claim has told the store of yet
	lasting  []uint64    // tokens of those that wait for long: each claim tells of them again
	looked   time.Time   // when these were last looked for
}

// A lease is what finishedLeases knows of an attempt.
type lease struct {
	index    int
	finished time.Time
}

// lastingAfter is how long an attempt waits before it is listed again; a part of the
// lease if that is short.
const lastingAfter = time.Second

func (l *finishedLeases) add(f *inflight, now time.Time) {
	f.lease = lease{len(l.attempts), now}
	l.attempts = append(l.attempts, f)
	l.fresh = append(l.fresh, f.settlement.Task.Token)
}

func (l *finishedLeases) remove(f *inflight) {
	last := len(l.attempts) - 1
	l.attempts[f.lease.index] = l.attempts[last]
	l.attempts[f.lease.index].lease.index = f.lease.index
	l.attempts[last] = nil
	l.attempts = l.attempts[:last]
}

// tokens returns the tokens for [Claim.Finished]: those of all if the store fails, for
// claims are rare then.
func (l *finishedLeases) tokens(now time.Time, lease time.Duration, all bool) []uint64 {
	pause := min(lastingAfter, lease/8)
	if all || now.Sub(l.looked) >= pause {
		l.looked, l.lasting = now, l.lasting[:0]
		for _, f := range l.attempts {
			if all || now.Sub(f.lease.finished) >= pause {
				l.lasting = append(l.lasting, f.settlement.Task.Token)
			}
		}
	}
	return append(l.fresh, l.lasting...)
}

// told notes that a claim has told the store of those that were new.
func (l *finishedLeases) told() { l.fresh = l.fresh[:0] }
