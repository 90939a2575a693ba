package queue

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/webhooks"
)

// A model is a queue that looks at everything at every step. It has no turns.
type model struct {
	*testing.T
	rnd           *rand.Rand
	q             Queue
	now           time.Time
	next          uint64
	pending       map[uint64]*record
	paused        map[string]bool
	tokens        map[uint64]bool
	leased        []Claimed
	reserved      []*record      // with what token is in lease, unless it was dropped
	caps          map[string]int // of the last claim of all webhooks
	version       uint64
	rests         map[string]time.Time
	done          int    // delivered, removed or dropped
	expiredLeases uint64 // leases that ran out

	standings map[string]Standing // as they are set
	asked     time.Time           // when the last claim was made
	recovered int                 // deliveries that a recovery made due

	draining bool
}

// A record is a pending delivery, as the model has it.
type record struct {
	Pending
	lease uint64 // token; 0: none
	until time.Time
	held  bool

	finished bool // does not count
	timing   timing
}

func (d *record) earlier(other *record) bool {
	return d.Due.Before(other.Due) || d.Due.Equal(other.Due) && d.Seq < other.Seq
}

func (d *record) counts() bool { return d.lease != 0 && !d.finished }

const modelWebhooks, modelAccounts = 6, 3

func (m *model) webhook() (id, account string) {
	n := m.rnd.IntN(modelWebhooks)
	return fmt.Sprint("w", n), fmt.Sprint("a", n%modelAccounts)
}

func (m *model) some(most time.Duration) time.Duration {
	return time.Duration(m.rnd.Int64N(most.Milliseconds()+1)) * time.Millisecond
}

// TestNothingIsLost makes random steps, compares every claim with the model, and
// checks that every delivery is delivered once and that nothing is left.
func TestNothingIsLost(t *testing.T) {
	recovered := 0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := &model{
				T: t, rnd: rand.New(rand.NewPCG(seed, 0)), now: start,
				pending: map[uint64]*record{}, paused: map[string]bool{}, tokens: map[uint64]bool{}, standings: map[string]Standing{}, rests: map[string]time.Time{}, caps: map[string]int{},
			}
			for i := range 1000 {
				m.now = m.now.Add(m.some(60 * time.Millisecond))
				m.step()
				if i%7 == 0 {
					m.compare()
				}
			}
			for id := range modelWebhooks {
				m.q.Resume(fmt.Sprint("w", id))
			}
			clear(m.paused)
			m.draining = true
			m.giveBack()
			for range 10_000 {
				if len(m.pending) == 0 {
					break
				}
				m.now = m.now.Add(m.some(time.Second))
				m.claim(webhooks.Claim{Limit: 9, Cap: each(3), Lease: time.Second})
				m.settle()
			}
			if len(m.pending) != 0 || m.done != int(m.next) {
				t.Fatalf("%d deliveries left, %d of %d done", len(m.pending), m.done, m.next)
			}
			m.q.Claim(m.now, webhooks.Claim{Limit: 9, Lease: time.Second}) // tidies the runQueues
			if len(m.q.leases)+len(m.q.later.Heap)+inLine(&m.q)+m.q.waiting != 0 {
				t.Fatalf("left over: %d leases, %d lanes among the timers, %d in line, %d waiting",
					len(m.q.leases), len(m.q.later.Heap), inLine(&m.q), m.q.waiting)
			}
			if len(m.q.webhooks.all)+len(m.q.accounts.all) != 0 {
				t.Errorf("remembered with nothing pending: %d webhooks, %d accounts", len(m.q.webhooks.all), len(m.q.accounts.all))
			}
			recovered += m.recovered
		})
	}
	if recovered == 0 {
		t.Error("no recovery made a delivery due")
	}
}

// inLine counts the lanes that are in runQueues.
func inLine(q *Queue) (n int) {
	for kind := range q.runQueues {
		for s := range q.runQueues[kind] {
			for line := q.runQueues[kind][s].first; line != nil; line = line.links.after {
				for l := line.lanes.first; l != nil; l = l.links.after {
					n++
				}
			}
		}
	}
	return n
}

func (m *model) step() {
	id, account := m.webhook()
	switch n := m.rnd.IntN(100); {
	case n < 35:
		due := m.now.Add(m.some(2*time.Second) - time.Second)
		attempts := m.rnd.IntN(3)
		o := Pending{Webhook: id, Account: account, Seq: m.next, Due: due, Attempts: attempts, Before: m.rnd.IntN(attempts + 1), Recovered: m.rnd.IntN(3) == 0, Standing: m.standings[id]}
		o.First = !o.Recovered && m.rnd.IntN(10) == 0
		m.next++
		d := &record{Pending: o}
		if o.First {
			d.Due = m.beforeAll(d, due)
		}
		m.pending[o.Seq] = d
		if attempts == 0 && !o.Recovered && !o.First {
			m.q.AddEach([]string{id}, []Standing{m.standings[id]}, account, o.Seq, due)
		} else {
			m.q.Add(o)
		}
		if m.paused[id] { // a store says so, if the webhook had no lanes yet
			m.q.Pause(id)
		}
	case n < 60:
		claim := webhooks.Claim{Limit: 1 + m.rnd.IntN(6), PerAccount: m.rnd.IntN(5), Lease: time.Second + m.some(time.Second)}
		of := map[string]int{}
		if m.rnd.IntN(2) == 0 {
			maps.Copy(of, m.caps)
		}
		for range m.rnd.IntN(4) {
			capped, _ := m.webhook()
			of[capped] = m.rnd.IntN(5)
		}
		perWebhook, perUnproven := 1+m.rnd.IntN(3), 1+m.rnd.IntN(3)
		claim.Cap = func(webhook string, proven bool) int {
			if most, ok := of[webhook]; ok {
				return most
			}
			if !proven {
				return min(perWebhook, perUnproven)
			}
			return perWebhook
		}
		if m.rnd.IntN(4) == 0 {
			claim.Webhooks = slices.Sorted(maps.Keys(of))
		}
		if len(claim.Webhooks) == 0 {
			claim.ProvenOnly = max(0, m.rnd.IntN(claim.Limit+2)-1)
			claim.CapVersion = m.capVersion(of)
			m.caps = of
		}
		for range m.rnd.IntN(4) {
			if len(m.leased) > 0 {
				claim.Finished = append(claim.Finished, m.leased[m.rnd.IntN(len(m.leased))].Token)
			}
		}
		m.claim(claim)
	case n < 85:
		m.settle()
	case n < 90:
		m.edit(func(d *record) bool {
			due := m.now.Add(m.some(200*time.Millisecond) - 100*time.Millisecond)
			ok := m.q.MakeDue(d.Webhook, d.Seq, due)
			if ok {
				d.Due, d.Recovered, d.timing = m.beforeAll(d, due), false, scheduled
			}
			return ok
		})
	case n < 92:
		m.edit(func(d *record) bool {
			ok := m.q.Remove(d.Webhook, d.Seq)
			if ok {
				m.end(d)
			}
			return ok
		})
	case n < 93:
		m.edit(func(d *record) bool {
			tokens := m.q.Reserve(d.Webhook, []uint64{d.Seq})
			token, ok := tokens[d.Seq]
			switch there := m.pending[d.Seq] == d; {
			case !there:
				return token != 0 || !ok // as for what is leased
			case ok:
				d.lease, d.held, d.finished = token, true, true
				m.reserved = append(m.reserved, d)
			}
			return ok
		})
	case n < 94 && m.rnd.IntN(3) == 0:
		m.reserveAll(id)
	case n < 94 && m.rnd.IntN(2) == 0:
		m.giveBack()
	case n < 94 && m.rnd.IntN(4) < 2:
		m.rests[id] = later(m.rests[id], m.now.Add(m.some(50*time.Millisecond)))
		m.q.Rest(id, m.rests[id])
		m.setStanding(id, Failing)
		m.setStanding(id, Proven)
	case n < 94:
		m.setStanding(id, Standing(m.rnd.IntN(int(standings))))
	case n < 95:
		m.q.Pause(id)
		m.paused[id] = true
	case n < 98:
		m.q.Resume(id)
		m.paused[id] = false
	case n < 99 && m.rnd.IntN(2) == 0:
		m.rests[id] = later(m.rests[id], m.now.Add(m.some(time.Second)))
		m.q.Rest(id, m.rests[id])
	case n < 99:
		delete(m.rests, id)
		m.q.EndRest(id)
	default:
		delete(m.rests, id)
		var want []uint64
		m.paused[id] = false
		for _, d := range m.pending {
			if d.Webhook == id {
				m.end(d)
				want = append(want, d.Seq)
			}
		}
		if diff := cmp.Diff(sorted(want), sorted(m.q.Drop(id)), cmpopts.EquateEmpty()); diff != "" {
			m.Fatalf("Drop of %s (-want +got):\n%s", id, diff)
		}
	}
}

// capVersion returns the version of caps, which stays as it is if none has changed from
// 0; or sometimes 0.
func (m *model) capVersion(caps map[string]int) uint64 {
	for id, limit := range m.caps {
		if now, capped := caps[id]; limit == 0 && !(capped && now == 0) {
			m.version++
			break
		}
	}
	if m.rnd.IntN(8) == 0 {
		return 0
	}
	return m.version
}

// edit makes a change of a delivery that must succeed if it is not leased.
func (m *model) edit(change func(*record) bool) {
	if m.next == 0 {
		return
	}
	d := m.pending[m.rnd.Uint64N(m.next)]
	if d == nil {
		d = &record{Pending: Pending{Webhook: "w0", Seq: m.next}, lease: 1} // not there at all
	}
	want := d.lease == 0
	if got := change(d); got != want {
		m.Fatalf("an edit of %+v reports %v, want %v", d, got, want)
	}
}

// reserveAll reserves some of what is pending for the webhook at once.
func (m *model) reserveAll(webhook string) {
	var seqs []uint64
	for _, d := range m.pending {
		if d.Webhook == webhook && m.rnd.IntN(2) == 0 {
			seqs = append(seqs, d.Seq)
		}
	}
	tokens := m.q.Reserve(webhook, seqs)
	for _, seq := range seqs {
		d := m.pending[seq]
		token, ok := tokens[seq]
		if ok != (d.lease == 0) || ok && token == 0 {
			m.Fatalf("Reserve of %+v = %d, %v", d, token, ok)
		}
		if ok {
			d.lease, d.held, d.finished = token, true, true
			m.reserved = append(m.reserved, d)
		}
	}
}

// giveBack ends what is reserved, or was when its webhook was dropped.
func (m *model) giveBack() {
	for _, d := range m.reserved {
		token := d.lease
		switch there := m.pending[d.Seq] == d; {
		case there && m.rnd.IntN(2) == 0:
			m.q.Done(token)
			m.end(d)
		case there:
			d.lease, d.held = 0, false
			fallthrough
		default:
			m.q.Release(token)
		}
	}
	m.reserved = nil
}

func (m *model) end(d *record) {
	delete(m.pending, d.Seq)
	m.done++
}

// settle settles some of what is leased, and of what was; all of it in the end.
func (m *model) settle() {
	for len(m.leased) > 0 && (m.draining || m.rnd.IntN(3) > 0) {
		i := m.rnd.IntN(len(m.leased))
		c := m.leased[i]
		m.leased = slices.Delete(m.leased, i, i+1)
		d := m.pending[c.Seq]
		current := d != nil && d.lease == c.Token
		webhook, seq, ok := m.q.Hold(c.Token)
		if ok != current || ok && (webhook != c.Webhook || seq != c.Seq) {
			m.Fatalf("Hold of %+v = %q, %d, %v; the model has %+v", c, webhook, seq, ok, d)
		}
		if !ok {
			continue
		}
		d.held = true
		if m.rnd.IntN(4) == 0 {
			m.claim(webhooks.Claim{Limit: 2, Lease: time.Second})
		}
		d.held = false
		switch m.rnd.IntN(5) {
		case 0:
			asked := m.rnd.IntN(4) == 0
			d.Due, d.Attempts, d.lease = m.now.Add(m.some(3*time.Second)), c.Attempt, 0
			if asked || d.timing == early {
				d.timing = waits
			} else {
				d.timing = scheduled
			}
			m.q.Retry(c.Token, d.Due, c.Attempt, asked)
		case 1:
			d.lease = 0
			m.q.Release(c.Token)
		case 2:
			m.q.Unhold(c.Token)
			m.leased = append(m.leased, c)
		default:
			m.q.Done(c.Token)
			m.end(d)
		}
	}
}

// setStanding sets the standing of a webhook, which makes all due that waits if its receiver
// was down and is proven now.
func (m *model) setStanding(id string, s Standing) {
	e := m.q.webhooks.all[id]
	recovers := e != nil && e.down && s == Proven && e.standing != Proven
	m.standings[id] = s
	m.q.SetStanding(id, s)
	if !recovers {
		return
	}
	for _, d := range m.pending {
		if d.Webhook == id && d.lease == 0 && d.timing == scheduled && d.Due.After(m.asked) {
			d.Due, d.timing = m.asked, early
			m.recovered++
		}
	}
}

// claim claims and checks what it gets.
func (m *model) claim(claim webhooks.Claim) {
	m.asked = m.now
	for _, token := range claim.Finished {
		for _, d := range m.pending {
			if d.lease == token {
				d.finished = true
				if until := m.now.Add(claim.Lease); until.After(d.until) {
					d.until = until
				}
			}
		}
	}
	for _, d := range m.pending {
		if d.lease != 0 && !d.held && !d.until.After(m.now) {
			d.lease = 0
			d.Attempts++
			m.expiredLeases++
		}
	}
	claimed, wait := m.q.Claim(m.now, claim)
	if len(claimed) > claim.Limit {
		m.Fatalf("claimed %d, more than %d", len(claimed), claim.Limit)
	}
	last := -1 // the last live one
	for i, c := range claimed {
		d := m.pending[c.Seq]
		if d == nil || d.lease != 0 || m.tokens[c.Token] || !m.claimable(d) || d.Webhook != c.Webhook || d.Attempts+1 != c.Attempt || d.Before != c.Before {
			m.Fatalf("claimed %+v; the model has %+v", c, d)
		}
		for _, other := range m.pending {
			if other.Webhook == d.Webhook && m.claimable(other) &&
				(d.Recovered && !other.Recovered || d.Recovered == other.Recovered && other.earlier(d)) {
				m.Fatalf("claimed %+v before %+v", d, other)
			}
		}
		if !d.Recovered {
			last = i
		}
		m.tokens[c.Token] = true
		d.lease, d.until, d.finished = c.Token, m.now.Add(claim.Lease), false
		m.leased = append(m.leased, c)
		if webhook, account := m.leases(d); !m.allows(claim, d.Webhook, webhook-1, account-1) {
			m.Fatalf("claimed %+v with %d leased of its webhook, %d of its account: %+v", c, webhook, account, claim)
		}
	}
	if len(claim.Webhooks) == 0 {
		for i, c := range claimed {
			if m.pending[c.Seq].Recovered && i < last {
				m.Fatalf("claimed what was recovered before what was not: %+v", claimed)
			}
		}
	}
	if n := m.unproven(claimed); n > claim.Limit-claim.ProvenOnly {
		m.Fatalf("claimed %d of unproven webhooks: %+v", n, claim)
	}
	m.checkRest(claim, claimed, wait)
}

func (m *model) unproven(claimed []Claimed) (n int) {
	for _, c := range claimed {
		if m.standings[c.Webhook] != Proven {
			n++
		}
	}
	return n
}

// unprovenOut reports whether the claim allows no more of unproven webhooks, of which
// the delivery is.
func (m *model) unprovenOut(claim webhooks.Claim, claimed []Claimed, d *record) bool {
	return claim.ProvenOnly > 0 && m.standings[d.Webhook] != Proven && m.unproven(claimed) == claim.Limit-claim.ProvenOnly
}

// beforeAll returns when something is due that is to come before all that waits of
// its webhook, by then.
func (m *model) beforeAll(d *record, due time.Time) time.Time {
	for _, other := range m.pending {
		if other != d && other.Webhook == d.Webhook && other.lease == 0 && !other.Recovered && !due.Before(other.Due) {
			due = other.Due.Add(-time.Millisecond)
		}
	}
	return due
}

// checkRest checks that nothing was overlooked, and that wait is not too long.
func (m *model) checkRest(claim webhooks.Claim, claimed []Claimed, wait time.Duration) {
	short := len(claimed) < claim.Limit
	if short == (wait == 0) || wait < 0 || wait > time.Hour {
		m.Fatalf("wait = %v with %d of %d claimed", wait, len(claimed), claim.Limit)
	}
	anyRecovered := slices.ContainsFunc(claimed, func(c Claimed) bool { return m.pending[c.Seq].Recovered })
	for _, d := range m.pending {
		if d.lease != 0 {
			if !d.held && m.now.Add(wait).After(d.until) {
				m.Fatalf("wait = %v, longer than until the lease of %+v ends", wait, d)
			}
			continue
		}
		webhook, account := m.leases(d)
		missed := m.claimable(d) && m.allows(claim, d.Webhook, webhook, account)
		if missed && !m.unprovenOut(claim, claimed, d) && (short || anyRecovered && !d.Recovered && len(claim.Webhooks) == 0) {
			m.Fatalf("claimed %+v, but not %+v: %+v", claimed, d, claim)
		}
		if account >= claim.PerAccount && claim.PerAccount > 0 || m.unprovenOut(claim, claimed, d) {
			continue // until a lease ends, which is told
		}
		concerned := m.cap(claim, d.Webhook) > 0 && !m.paused[d.Webhook] && !m.blocked(d.Webhook)
		if concerned && m.now.Add(wait).After(later(d.Due, m.rests[d.Webhook])) {
			m.Fatalf("wait = %v, longer than until %+v is due: %+v", wait, d, claim)
		}
	}
}

func (m *model) allows(claim webhooks.Claim, webhook string, ofWebhook, ofAccount int) bool {
	return ofWebhook < m.cap(claim, webhook) && (claim.PerAccount == 0 || ofAccount < claim.PerAccount)
}

// cap returns how many leases the webhook may have.
func (m *model) cap(claim webhooks.Claim, webhook string) int {
	switch {
	case len(claim.Webhooks) > 0 && !slices.Contains(claim.Webhooks, webhook):
		return 0
	case claim.Cap == nil:
		return math.MaxInt
	}
	return claim.Cap(webhook, m.standings[webhook] == Proven)
}

// claimable reports whether a delivery is due, and not leased, paused or at rest.
func (m *model) claimable(d *record) bool {
	return m.due(d) && !m.rests[d.Webhook].After(m.now)
}

// due reports whether a delivery is due, and not leased or paused.
func (m *model) due(d *record) bool {
	return d.lease == 0 && !m.paused[d.Webhook] && !d.Due.After(m.now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// blocked reports whether the webhook has something claimable, which after a claim
// of all that is allowed its caps must have held back.
func (m *model) blocked(webhook string) bool {
	for _, d := range m.pending {
		if d.Webhook == webhook && m.claimable(d) {
			return true
		}
	}
	return false
}

// leases counts those of the delivery's webhook and account.
func (m *model) leases(d *record) (ofWebhook, ofAccount int) {
	for _, other := range m.pending {
		if other.counts() && other.Webhook == d.Webhook {
			ofWebhook++
		}
		if other.counts() && other.Account == d.Account {
			ofAccount++
		}
	}
	return ofWebhook, ofAccount
}

// compare compares what the queue tells of itself.
func (m *model) compare() {
	type facts struct {
		Pending []uint64
		Backlog webhooks.Backlog
	}
	want, got := map[string]facts{}, map[string]facts{}
	var all facts
	add := func(f *facts, d *record) {
		f.Backlog.Pending++
		if m.due(d) && (f.Backlog.OldestDue.IsZero() || d.Due.Before(f.Backlog.OldestDue)) {
			f.Backlog.OldestDue = d.Due.UTC()
		}
	}
	for n := range modelWebhooks {
		id := fmt.Sprint("w", n)
		var f facts
		for _, d := range m.pending {
			if d.Webhook == id {
				f.Pending = append(f.Pending, d.Seq)
				add(&f, d)
				add(&all, d)
			}
		}
		slices.Sort(f.Pending)
		want[id], got[id] = f, facts{pendingOf(&m.q, id), m.q.Backlog(m.now, id)}
	}
	all.Backlog.ExpiredLeases = m.expiredLeases
	want[""], got[""] = all, facts{nil, m.q.Backlog(m.now, "")}
	if diff := cmp.Diff(want, got); diff != "" {
		m.Fatalf("what is pending (-want +got):\n%s", diff)
	}
	for _, d := range m.pending {
		if got := m.q.Leased(d.Webhook, d.Seq); got != (d.lease != 0) {
			m.Fatalf("Leased = %v; the model has %+v", got, d)
		}
	}
}

// pendingOf returns the numbers of what is pending for the webhook, ascending.
func pendingOf(q *Queue, webhook string) (seqs []uint64) {
	e := q.webhooks.all[webhook]
	if e == nil {
		return nil
	}
	for _, kind := range []int{live, recovered} {
		for _, it := range e.lanes[kind].waiting {
			seqs = append(seqs, it.seq)
		}
	}
	for le := range e.leasesUnderWay() {
		seqs = append(seqs, le.item.seq)
	}
	return sorted(seqs)
}

func sorted(seqs []uint64) []uint64 {
	slices.Sort(seqs)
	return seqs
}
