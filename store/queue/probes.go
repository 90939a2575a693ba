package queue

import (
	"math"
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	probePause = time.Second      // between two probes of one webhook, at least
	probeLife  = 75 * time.Second // of a call of Probe: no webhook is left alone for longer
)

// probes are the webhooks that Probe was called for, and those that were probed within
// the last second.
type probes struct {
	list []*probe // in the order in which the first call came
	all  map[string]*probe
}

type probe struct {
	webhook string
	asked   time.Time // when Probe was called; zero: there was a probe since
	from    int64     // when there may be one
}

// Probe has the next Claim that allows probes lease what the webhook has due, or has
// due soon, as [webhooks.Store] has it.
func (q *Queue) Probe(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.probes.all[webhook]
	if p == nil {
		p = &probe{webhook: webhook, from: math.MinInt64}
		if q.probes.all == nil {
			q.probes.all = make(map[string]*probe)
		}
		q.probes.all[webhook] = p
		q.probes.list = append(q.probes.list, p)
	}
	p.asked = time.Now()
}

// claimProbes claims for those that Probe was called for, in turn, and returns when
// it can claim more if nothing else happens.
func (q *Queue) claimProbes(claimed []Claimed, t int64, claim *webhooks.Claim) ([]Claimed, int64) {
	next := t + maxWait.Milliseconds()
	most := min(claim.Limit, claim.Probes)
	q.probes.list = slices.DeleteFunc(q.probes.list, func(p *probe) (done bool) {
		if p.asked.IsZero() || time.Since(p.asked) > probeLife {
			if p.from > t {
				return false // it was probed just now
			}
			delete(q.probes.all, p.webhook)
			return true
		}
		e := q.webhooks.all[p.webhook]
		switch {
		case e == nil, len(claimed) >= most, e.account.full(claim):
		case e.next(t) == nil:
			next = min(next, e.dueAfter(t, noRest))
		case t < p.from:
			next = min(next, p.from)
		default:
			c, ok := q.lease(e.next(t), t+claim.Lease.Milliseconds())
			if !ok {
				next = t
				break
			}
			c.Probe = true
			claimed = append(claimed, c)
			p.from, p.asked = t+probePause.Milliseconds(), time.Time{}
		}
		return false
	})
	return claimed, next
}
