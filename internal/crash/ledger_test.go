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

// A ledger records the requests to hosts, their responses, and the deliveries that arrive. A single
// process makes all entries, in the order of events: it records a request before sending it, and a
// response after receiving it.
type ledger struct {
	testing.TB

	mu     sync.Mutex
	now    int               // number of entries
	life   int               // number of the current host, from 1
	hooks  map[string]*hook  // by path
	alive  map[*hook]bool    // webhooks whose deletion was not requested
	events map[string]*event // by ID
	twice  []twice
	counts counts
}

// counts holds the results of a test.
type counts struct {
	kills        int
	acknowledged int // events
	expected     int // deliveries of acknowledged events that must arrive
	arrived      int // requests
	duplicates   int // requests after one with a 2xx response
	abandoned    int // duplicates that a host sent again without waiting for the response
	cutShort     int // requests to a deleted webhook that the host had abandoned
	recovered    int // skipped deliveries that were recovered
	redelivered  int
	lost         int
}

// A hook is a webhook, identified by the path of its URL.
type hook struct {
	path    string
	account string
	types   []webhooks.EventType
	begun   int // when its creation was requested

	standing bool   // it is never deleted
	id       string // empty until the creation is acknowledged
	verifier *signing.Verifier
	early    []arrival // requests that arrived before verifier was known

	state    state
	changes  int  // number of changes of its state that may have happened
	doomed   bool // its deletion was requested
	gone     int  // when its deletion was acknowledged; 0 means not yet
	goneLife int  // the host that acknowledged it

	owed       int               // number of deliveries that must arrive
	open       map[string]bool   // IDs of events that must arrive and were not accepted yet
	skipped    map[string]bool   // IDs of events that must not arrive before a recovery
	recovering bool              // a recovery was requested
	tally      map[string]*tally // requests that arrived, by event ID
}

// A state is the known state of a webhook.
type state int

const (
	unknown state = iota // on, off or missing
	on
	off
)

// A tally counts the requests of one delivery.
type tally struct {
	arrived  int
	accepted int   // host of the first 2xx response since the last redelivery was requested; 0 means none
	wire     *wire // connection of that request
	turn     int   // number of that request on the connection
	again    int   // last host that was asked to redeliver it
}

// A wire is a connection from a host.
type wire struct{ requests int }

// A twice is a delivery that a host sent again after its first request was answered.
type twice struct {
	what string
	wire *wire
	turn int // number of the previous request on the wire
}

type event struct {
	id, account string
	kind        webhooks.EventType
	acked       int           // when it was acknowledged; 0 means not yet
	at          map[*hook]int // hook.changes of webhooks of known state when publishing began
	body        []byte        // body of the first request
}

type arrival struct {
	wire   *wire
	header http.Header
	body   []byte
}

func newLedger(t testing.TB) *ledger {
	return &ledger{TB: t, hooks: make(map[string]*hook), alive: make(map[*hook]bool), events: make(map[string]*event)}
}

// lock locks the ledger for an entry.
func (l *ledger) lock() (unlock func()) {
	l.mu.Lock()
	l.now++
	return l.mu.Unlock
}

// begin records the start of the next host.
func (l *ledger) begin() {
	defer l.lock()()
	l.life++
}

// end marks all requests from the host as handled. It checks that the host repeated a request only
// after abandoning it. Abandoning a request closes its connection, so that connection must not have
// carried a later request.
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

// creating records the request to create a webhook.
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

// created records that the webhook exists.
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

// changing records a request to disable, enable or delete the webhook. From now on its state is
// unknown.
func (l *ledger) changing(h *hook) {
	defer l.lock()()
	h.state = unknown
	h.changes++
}

// deleting records a request to delete the webhook. Its deliveries need not arrive.
func (l *ledger) deleting(h *hook) {
	l.changing(h)
	defer l.lock()()
	h.doomed = true
	delete(l.alive, h)
}

// turned records the state of the webhook.
func (l *ledger) turned(h *hook, state state) {
	defer l.lock()()
	h.state = state
}

// deleted records the deletion of the webhook. No later request to it is allowed.
func (l *ledger) deleted(h *hook) {
	defer l.lock()()
	h.gone, h.goneLife = l.now, l.life
}

// publishing records a request to publish an event, which may be a repetition.
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

// published records that the event is acknowledged, so that it must arrive.
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
			// the state is unknown
		case h.state == on:
			l.owe(h, e.id)
		default:
			h.skipped[e.id] = true
		}
	}
}

// owe records that an event must arrive, unless it has already arrived.
func (l *ledger) owe(h *hook, id string) {
	h.owed++
	if n := h.tally[id]; n == nil || n.accepted == 0 {
		h.open[id] = true
	}
}

// missedBy returns the number of events that were published while the webhook was disabled and are
// not recovered.
func (l *ledger) missedBy(h *hook) int {
	defer l.lock()()
	return len(h.skipped)
}

// recovering notes that a request to recover the webhook's skipped events was sent.
func (l *ledger) recovering(h *hook) {
	defer l.lock()()
	h.recovering = true
}

// recovered records that the skipped events must arrive.
func (l *ledger) recovered(h *hook) {
	defer l.lock()()
	for id := range h.skipped {
		l.owe(h, id)
		l.counts.recovered++
	}
	clear(h.skipped)
	h.recovering = false
}

// redelivering returns an event that an earlier host delivered to the webhook, or "". It records
// the request to redeliver the event.
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

// redelivered records that the event must arrive again, unless it has already done so.
func (l *ledger) redelivered(h *hook, id string) {
	defer l.lock()()
	l.counts.redelivered++
	l.owe(h, id)
}

// isGone reports whether the webhook with the path was deleted, and whether that was before the
// current host started.
func (l *ledger) isGone(path string) (gone, before bool) {
	defer l.lock()()
	h := l.hooks[path]
	return h != nil && h.gone > 0, h != nil && h.gone > 0 && h.goneLife < l.life
}

// arrive records that a request has arrived, and reports whether to accept it.
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

// accepted records that a 2xx response is about to be sent.
func (l *ledger) accepted(path string, a arrival) {
	defer l.lock()()
	h, id := l.hooks[path], a.header.Get(signing.HeaderID)
	delete(h.open, id)
	if n := h.tally[id]; n.accepted == 0 {
		n.accepted, n.wire, n.turn = l.life, a.wire, a.wire.requests
	}
}

// refusedFirst selects the deliveries whose first request gets a 500 response, so that retries must
// arrive, too.
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

// missing lists the deliveries that must arrive and have not.
func (l *ledger) missing() (list []string) {
	defer l.lock()()
	for h := range l.alive {
		for id := range h.open {
			list = append(list, id+" to "+h.path)
		}
	}
	return list
}

// backlog returns the number of missing deliveries.
func (l *ledger) backlog() (n int) {
	defer l.lock()()
	for h := range l.alive {
		n += len(h.open)
	}
	return n
}

// total returns the final counts.
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

// count changes the counts while holding the lock.
func (l *ledger) count(change func(*counts)) {
	defer l.lock()()
	change(&l.counts)
}

// of returns the webhooks of an account, by path.
func (l *ledger) of(account string) map[string]*hook {
	defer l.lock()()
	hooks := maps.Clone(l.hooks)
	maps.DeleteFunc(hooks, func(_ string, h *hook) bool { return h.account != account })
	return hooks
}
