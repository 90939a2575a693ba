package queue

import (
	"cmp"
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
	q.probe(webhook)
}

// ProbeAgain is Probe after a claimed probe for which no attempt was made, since the delivery was not
// pending or not due: the next probe need not wait.
func (q *Queue) ProbeAgain(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.probe(webhook).from = math.MinInt64
}

func (q *Queue) probe(webhook string) *probe {
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
	return p
}

// claimProbes claims for those that Probe was called for, and returns when it can claim more if
// nothing else happens. Accounts take turns, beginning with the one whose last probe is oldest:
// one that asks for many does not hold up the others.
func (q *Queue) claimProbes(claimed []Claimed, t int64, claim *webhooks.Claim) ([]Claimed, int64) {
	next := t + maxWait.Milliseconds()
	most := min(claim.Limit, claim.Probes)
	due := make(map[*account][]*probe)
	var accounts []*account
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
		case e == nil, most <= 0, e.account.full(claim):
		case e.next(t) == nil:
			next = min(next, e.dueAfter(t, noRest))
		case t < p.from:
			next = min(next, p.from)
		default:
			if due[e.account] == nil {
				accounts = append(accounts, e.account)
			}
			due[e.account] = append(due[e.account], p)
		}
		return false
	})
	slices.SortStableFunc(accounts, func(a, b *account) int { return cmp.Compare(a.probed, b.probed) })
	for _, a := range accounts {
		if claim.ProbeCap != nil {
			due[a] = due[a][:min(len(due[a]), max(0, claim.ProbeCap(a.name)))]
		}
	}
	for len(accounts) > 0 && len(claimed) < most {
		accounts = slices.DeleteFunc(accounts, func(a *account) (done bool) {
			if len(due[a]) == 0 || len(claimed) == most || a.full(claim) {
				return true
			}
			p := due[a][0]
			due[a] = due[a][1:]
			c, ok := q.lease(q.webhooks.all[p.webhook].next(t), t+claim.Lease.Milliseconds())
			if !ok {
				next = t
				return false
			}
			a.probed = q.served
			c.Probe = true
			claimed = append(claimed, c)
			p.from, p.asked = t+probePause.Milliseconds(), time.Time{}
			return false
		})
	}
	return claimed, next
}
