//go:build unix

package crash_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// A ledger knows what hosts were asked, what they said is done, and what arrived.
// All of it is entered by the process that asks and receives, in the order in which
// things happened there: who is asked is entered before, what was answered after.
type ledger struct {
	testing.TB

	mu     sync.Mutex
	now    int               // counts entries
	life   int               // which host is at work, from 1
	hooks  map[string]*hook  // by path
	alive  map[*hook]bool    // those nobody asked to delete
	events map[string]*event // by id
	twice  []twice
	counts counts
}

// counts is what there is to say in the end.
type counts struct {
	kills        int
	acknowledged int // events
	expected     int // deliveries of acknowledged events that nothing has called off
	arrived      int // requests
	duplicates   int // of them, after one that was answered 2xx
	abandoned    int // of these, those that the same host sent again without waiting for the answer
	cutShort     int // requests that arrived after their webhook was gone, but had been abandoned
	recovered    int // deliveries that were skipped before
	redelivered  int
	lost         int
}

// A hook is a webhook, known by the path of its URL.
type hook struct {
	path    string
	account string
	types   []webhooks.EventType
	begun   int // when its creation was asked for

	standing bool   // it is never deleted
	id       string // empty until its creation was acknowledged
	verifier *signing.Verifier
	early    []arrival // what arrived before it could be verified

	state    state
	changes  int  // how often the state may have changed
	doomed   bool // its deletion was asked for
	gone     int  // when its deletion was acknowledged
	goneLife int  // and by which host

	owed       int               // how many deliveries must arrive
	open       map[string]bool   // those of them that were not accepted yet, by event id
	skipped    map[string]bool   // events that must not arrive unless they are recovered
	recovering bool              // that was asked for
	tally      map[string]*tally // of what arrived, by event id
}

// A state is what is known of a webhook.
type state int

const (
	unknown state = iota // it may be on, off or not be there
	on
	off
)

// A tally counts the requests of one delivery.
type tally struct {
	arrived  int
	accepted int   // which host's request was answered 2xx first; 0: none since it was to come again
	wire     *wire // by which that came
	turn     int   // which of the wire's requests it was
	again    int   // which host was last asked to redeliver it
}

// A wire is a connection from a host.
type wire struct{ requests int }

// A twice is a delivery that came again from the host that had an answer, or was
// sent one.
type twice struct {
	what string
	wire *wire
	turn int // of the request before
}

type event struct {
	id, account string
	kind        webhooks.EventType
	acked       int           // when it was acknowledged; 0: not yet
	at          map[*hook]int // webhooks of known state when it was first asked for, and their changes
	body        []byte        // as it arrived first
}

type arrival struct {
	wire   *wire
	header http.Header
	body   []byte
}

func newLedger(t testing.TB) *ledger {
	return &ledger{TB: t, hooks: make(map[string]*hook), alive: make(map[*hook]bool), events: make(map[string]*event)}
}

// lock makes an entry: it returns what ends it.
func (l *ledger) lock() (unlock func()) {
	l.mu.Lock()
	l.now++
	return l.mu.Unlock
}

// begin enters that the next host is at work.
func (l *ledger) begin() {
	defer l.lock()()
	l.life++
}

// end enters that all that the host sent is dealt with. What it sent again it must
// have abandoned before: a connection is closed then, and not used again.
func (l *ledger) end() {
	defer l.lock()()
	for _, t := range l.twice {
		if t.wire.requests > t.turn {
			l.Errorf("%s twice from the same host, which had the answer", t.what)
		}
	}
	l.counts.abandoned += len(l.twice)
	l.twice = nil
}

// creating enters that a webhook is asked for.
func (l *ledger) creating(account string, types ...webhooks.EventType) *hook {
	defer l.lock()()
	h := &hook{
		path: fmt.Sprintf("/%s/%d", account, len(l.hooks)), account: account, types: types, begun: l.now,
		open: make(map[string]bool), skipped: make(map[string]bool), tally: make(map[string]*tally),
	}
	l.hooks[h.path] = h
	l.alive[h] = true
	return h
}

// created enters that the webhook is there.
func (l *ledger) created(h *hook, id string, secret signing.Secret) {
	defer l.lock()()
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{secret}})
	if err != nil {
		l.Error(err)
		return
	}
	h.id, h.verifier, h.state = id, verifier, on
	for _, a := range h.early {
		l.verify(h, a)
	}
	h.early = nil
}

// changing enters that the webhook is to be turned off or on, or deleted: from now
// on nobody knows whether it gets what is published.
func (l *ledger) changing(h *hook) {
	defer l.lock()()
	h.state = unknown
	h.changes++
}

// deleting enters that the webhook is to be deleted: nothing must arrive any more.
func (l *ledger) deleting(h *hook) {
	l.changing(h)
	defer l.lock()()
	h.doomed = true
	delete(l.alive, h)
}

// turned enters that the webhook is on or off.
func (l *ledger) turned(h *hook, state state) {
	defer l.lock()()
	h.state = state
}

// deleted enters that the webhook is gone: no request to it may begin after that.
func (l *ledger) deleted(h *hook) {
	defer l.lock()()
	h.gone, h.goneLife = l.now, l.life
}

// publishing enters that an event is asked for, maybe not for the first time.
func (l *ledger) publishing(e *event) {
	defer l.lock()()
	if e.at != nil {
		return
	}
	l.events[e.id] = e
	e.at = make(map[*hook]int)
	for h := range l.alive {
		if h.state != unknown && h.account == e.account && slices.Contains(h.types, e.kind) {
			e.at[h] = h.changes
		}
	}
}

// published enters that the event is acknowledged, and must arrive.
func (l *ledger) published(e *event) {
	defer l.lock()()
	if e.acked > 0 {
		return
	}
	e.acked = l.now
	l.counts.acknowledged++
	for h, changes := range e.at {
		switch {
		case h.changes != changes:
			// nobody knows
		case h.state == on:
			l.owe(h, e.id)
		default:
			h.skipped[e.id] = true
		}
	}
}

// owe enters that an event must arrive, if it has not.
func (l *ledger) owe(h *hook, id string) {
	h.owed++
	if n := h.tally[id]; n == nil || n.accepted == 0 {
		h.open[id] = true
	}
}

// missedBy returns how many events were published while the webhook was off, and are
// not recovered.
func (l *ledger) missedBy(h *hook) int {
	defer l.lock()()
	return len(h.skipped)
}

// recovering enters that what the webhook was not sent while it was off is to be
// sent now.
func (l *ledger) recovering(h *hook) {
	defer l.lock()()
	h.recovering = true
}

// recovered enters that it must arrive.
func (l *ledger) recovered(h *hook) {
	defer l.lock()()
	for id := range h.skipped {
		l.owe(h, id)
		l.counts.recovered++
	}
	clear(h.skipped)
	h.recovering = false
}

// redelivering picks a delivery that an earlier host made, and enters that it is to
// come again; empty if there is none.
func (l *ledger) redelivering(h *hook) (id string) {
	defer l.lock()()
	for id, n := range h.tally {
		if n.accepted > 0 && n.accepted < l.life {
			n.accepted, n.again = 0, l.life
			return id
		}
	}
	return ""
}

// redelivered enters that it must come again, if it has not come since.
func (l *ledger) redelivered(h *hook, id string) {
	defer l.lock()()
	l.counts.redelivered++
	l.owe(h, id)
}

// isGone reports whether the webhook of that path was deleted, and whether by
// another host than the one at work.
func (l *ledger) isGone(path string) (gone, before bool) {
	defer l.lock()()
	h := l.hooks[path]
	return h != nil && h.gone > 0, h != nil && h.gone > 0 && h.goneLife < l.life
}

// arrive enters that a request arrived, and says whether to accept it.
func (l *ledger) arrive(path string, a arrival) (accept bool) {
	defer l.lock()()
	h, e := l.hooks[path], l.events[a.header.Get(signing.HeaderID)]
	if h == nil || e == nil {
		l.Errorf("%s got %q: nobody asked for that", path, a.header.Get(signing.HeaderID))
		return false
	}
	switch {
	case h.account != e.account:
		l.Errorf("%s got %s of %s", path, e.id, e.account)
	case !slices.Contains(h.types, e.kind):
		l.Errorf("%s got %s, which is of type %s", path, e.id, e.kind)
	case e.acked > 0 && e.acked < h.begun:
		l.Errorf("%s got %s, which was acknowledged before the webhook was asked for", path, e.id)
	case h.skipped[e.id] && !h.recovering:
		l.Errorf("%s got %s, which was published while the webhook was off", path, e.id)
	}
	if e.body == nil {
		e.body = a.body
	} else if !bytes.Equal(e.body, a.body) {
		l.Errorf("%s has two bodies:\n%s\n%s", e.id, e.body, a.body)
	}
	if h.verifier == nil {
		h.early = append(h.early, a)
	} else {
		l.verify(h, a)
	}
	n := h.tally[e.id]
	if n == nil {
		n = new(tally)
		h.tally[e.id] = n
	}
	n.arrived++
	l.counts.arrived++
	a.wire.requests++
	if n.accepted == 0 {
		return n.arrived > 1 || !refusedFirst(h.path, e.id)
	}
	l.counts.duplicates++
	if n.accepted == l.life && n.again != l.life {
		l.twice = append(l.twice, twice{h.path + " got " + e.id, n.wire, n.turn})
	}
	return true
}

// accepted enters that a request is about to be answered 2xx.
func (l *ledger) accepted(path string, a arrival) {
	defer l.lock()()
	h, id := l.hooks[path], a.header.Get(signing.HeaderID)
	delete(h.open, id)
	if n := h.tally[id]; n.accepted == 0 {
		n.accepted, n.wire, n.turn = l.life, a.wire, a.wire.requests
	}
}

// refusedFirst picks the deliveries that are answered 500 when they come for the
// first time, so that retries are owed too.
func refusedFirst(path, id string) bool {
	sum := fnv.New32()
	sum.Write([]byte(path + id))
	return sum.Sum32()%16 == 0
}

func (l *ledger) verify(h *hook, a arrival) {
	if err := h.verifier.Verify(a.header, a.body); err != nil {
		l.Errorf("%s got %s: %v", h.path, a.header.Get(signing.HeaderID), err)
	}
}

// missing returns what must arrive and has not.
func (l *ledger) missing() (list []string) {
	defer l.lock()()
	for h := range l.alive {
		for id := range h.open {
			list = append(list, id+" to "+h.path)
		}
	}
	return list
}

// backlog returns how much that is.
func (l *ledger) backlog() (n int) {
	defer l.lock()()
	for h := range l.alive {
		n += len(h.open)
	}
	return n
}

// total returns the counts.
func (l *ledger) total() counts {
	lost := l.backlog()
	defer l.lock()()
	c := l.counts
	c.lost = lost
	for h := range l.alive {
		c.expected += h.owed
	}
	return c
}

// count changes the counts.
func (l *ledger) count(change func(*counts)) {
	defer l.lock()()
	change(&l.counts)
}

// of returns the account's webhooks, by path.
func (l *ledger) of(account string) map[string]*hook {
	defer l.lock()()
	hooks := maps.Clone(l.hooks)
	maps.DeleteFunc(hooks, func(_ string, h *hook) bool { return h.account != account })
	return hooks
}
