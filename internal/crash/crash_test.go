//go:build unix

package crash_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

var kills = flag.Int("kills", 90, "how many hosts TestKill kills, at least 84 so that each point of the store is met; with -short a tenth")

// A harness runs hosts one after the other on the same file.
type harness struct {
	testing.TB
	path     string
	ledger   *ledger
	receiver *receiver
	planned  map[string]int // number of hosts to kill, by the plan's name
	reached  map[string]int // number of hosts killed as planned, by the plan's name

	tokens           map[string]string  // by account
	standing         map[string][]*hook // by account
	goodKey, deadKey string             // a valid and a deleted key; empty means not known
	openRequest      string             // ID of a request to create a key that no host has answered

	mu      sync.Mutex
	unacked []*event
	events  int
}

// A plan determines when a host is killed.
type plan struct {
	name  string
	early bool          // do not wait for acks before end and delay
	acks  int           // number of events to acknowledge first, at least 1
	end   bool          // begin a proper shutdown then
	delay time.Duration // kill the host after this delay
	point point         // the host kills itself here
	trap  *trap         // the receiver kills the host
}

// patience is how long a host may take to reach its point.
const patience = 10 * time.Second

// TestKill kills hosts under load, and checks that all acknowledged operations have taken effect
// and all acknowledged deletions stay in effect.
func TestKill(t *testing.T) {
	share := *kills / 3
	if testing.Short() {
		share /= 10
	}
	var mu sync.Mutex
	var total counts
	test := func(name string, plans func(i int) plan) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			for i := range share {
				h.live(plans(i))
			}
			h.finish()
			mu.Lock()
			defer mu.Unlock()
			total.add(h.report())
		})
	}
	test("at any moment", func(i int) plan {
		switch delay := rand.N(50 * time.Millisecond); i % 8 {
		case 0:
			return plan{name: "at start", early: true, delay: delay}
		case 4:
			return plan{name: "at the end", acks: 1 + rand.IntN(40), end: true, delay: delay / 5}
		default:
			return plan{name: "at random", acks: 1 + rand.IntN(40), delay: delay}
		}
	})
	test("at points of the store", func(i int) plan {
		methods := slices.Sorted(maps.Keys(changes))
		method := methods[i/2%len(methods)]
		at := point{method, i%2 == 1, 1 + rand.IntN(changes[method])}
		return plan{name: at.String(), point: at, acks: 10, end: method == "RecordKeyUse", delay: patience}
	})
	test("at stages of an attempt", func(i int) plan {
		trap := &trap{stage: stage(i % 3)}
		trap.left.Store(1 + rand.Int64N(60))
		return plan{name: trap.stage.String(), trap: trap, acks: 1, delay: patience}
	})
	t.Cleanup(func() { t.Logf("in all: %v", total) })
}

func newHarness(t *testing.T) *harness {
	l := newLedger(t)
	return &harness{
		TB: t, path: filepath.Join(t.TempDir(), "storage.db"), ledger: l, receiver: newReceiver(t, l),
		planned: make(map[string]int), reached: make(map[string]int), tokens: make(map[string]string), standing: make(map[string][]*hook),
	}
}

// live runs a host until it is killed or ends.
func (h *harness) live(p plan) {
	s, loads := h.begin(p)
	kill := func() {
		h.receiver.deciding.Lock() // waits for running checks that need the host alive
		defer h.receiver.deciding.Unlock()
		s.kill()
	}
	if p.trap != nil {
		p.trap.kill = kill
		h.receiver.trap.Store(p.trap)
	}
	if !p.early {
		select {
		case <-s.busy:
		case <-s.dead:
		case <-time.After(patience):
		}
	}
	if p.end {
		s.end()
	}
	s.rest(p.delay)
	slow := s.alive() && p.delay == patience
	kill()
	<-s.dead
	loads.Wait()
	h.receiver.trap.Store(nil)
	h.receiver.settle()
	h.ledger.end()
	h.planned[p.name]++
	if s.killed {
		h.ledger.count(func(c *counts) { c.kills++ })
	}
	if s.killed && !slow {
		h.reached[p.name]++
	}
	if h.Failed() {
		h.FailNow()
	}
}

// begin starts a host, and starts its clients when it is ready.
func (h *harness) begin(p plan) (*session, *sync.WaitGroup) {
	var bootstrap []string
	for _, account := range accounts {
		if h.tokens[account] == "" {
			bootstrap = append(bootstrap, account)
		}
	}
	h.ledger.begin()
	s := &session{
		harness: h, process: start(h, hostConfig{h.path, h.receiver.authority, bootstrap, p.point}),
		stop: make(chan struct{}), enough: int64(p.acks), busy: make(chan struct{}),
	}
	var clients sync.WaitGroup
	clients.Go(func() {
		<-s.ready
		maps.Copy(h.tokens, s.keys)
		if s.url == "" {
			return
		}
		for _, load := range loads {
			for range load.clients {
				clients.Go(func() { load.do(s) })
			}
		}
	})
	return s, &clients
}

// finish runs a last host until all events have arrived, and then inspects the file.
func (h *harness) finish() {
	s, clients := h.begin(plan{})
	s.rest(time.Second)
	close(s.stop)
	clients.Wait()
	for _, e := range h.unacked {
		s.announce(e)
	}
	for account, hooks := range h.standing {
		if s.turn(hooks[0], on) {
			id, _ := s.recoverStep(hooks[0])
			s.wait("/recovered/" + account + "/" + id)
		}
	}
	s.wait("/delivered")
	if missing := h.ledger.missing(); len(missing) > 0 {
		h.Errorf("%d deliveries are lost: %.20q", len(missing), missing)
	}
	s.end()
	<-s.dead
	h.receiver.settle()
	h.ledger.end()
	h.inspect()
}

// inspect compares the events in the file with the ledger, and verifies the file's pages.
func (h *harness) inspect() {
	file, err := bolt.Open(h.path)
	if err != nil {
		h.Fatal(err)
	}
	for _, e := range h.ledger.events {
		deliveries, err := file.EventDeliveries(h.Context(), e.account, e.id)
		if err != nil {
			h.Errorf("%s: %v", e.id, err)
		}
		for _, d := range deliveries {
			if d.State != webhooks.Delivered {
				h.Errorf("%s to %s is %s", e.id, d.WebhookID, d.State)
			}
		}
	}
	if err := file.Close(); err != nil {
		h.Fatal(err)
	}
	db, err := bbolt.Open(h.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			h.Errorf("the file: %v", err)
		}
		return nil
	})
	if err != nil {
		h.Fatal(err)
	}
}

// report prints and returns the counts.
func (h *harness) report() counts {
	total := h.ledger.total()
	for _, name := range slices.Sorted(maps.Keys(h.planned)) {
		h.Logf("%3d of %d killed %s", h.reached[name], h.planned[name], name)
		if h.reached[name] == 0 && h.planned[name] > 1 {
			h.Errorf("no host was killed %s", name)
		}
	}
	h.Logf("%v", total)
	if total.duplicates == 0 && !testing.Short() {
		h.Error("no delivery came twice: the test tests nothing")
	}
	return total
}

func (c counts) String() string {
	return fmt.Sprintf("%d kills, %d events acknowledged, %d deliveries expected (%d recovered, %d redelivered), %d requests arrived, "+
		"%d duplicates (%d abandoned), %d cut short by a deletion, lost=%d",
		c.kills, c.acknowledged, c.expected, c.recovered, c.redelivered, c.arrived, c.duplicates, c.abandoned, c.cutShort, c.lost)
}

func (c *counts) add(d counts) {
	c.kills += d.kills
	c.acknowledged += d.acknowledged
	c.expected += d.expected
	c.recovered += d.recovered
	c.redelivered += d.redelivered
	c.arrived += d.arrived
	c.duplicates += d.duplicates
	c.abandoned += d.abandoned
	c.cutShort += d.cutShort
	c.lost += d.lost
}

// nextEvent returns the next event to publish.
func (h *harness) nextEvent() *event {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.unacked); n > 0 {
		e := h.unacked[n-1]
		h.unacked = h.unacked[:n-1]
		return e
	}
	h.events++
	kind := alerts.TypeBalanceLow
	if h.events%4 == 0 {
		kind = alerts.TypeFilesExpiring
	}
	return &event{id: fmt.Sprintf("c%d-%d", h.ledger.life, h.events), account: accounts[h.events%len(accounts)], kind: kind}
}

// again makes a later host publish the event.
func (h *harness) again(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unacked = append(h.unacked, e)
}
