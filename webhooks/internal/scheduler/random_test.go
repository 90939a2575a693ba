package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// A world takes random steps. The store reports late, repeatedly and out of order; webhooks are
// added, changed and deleted; receivers succeed, fail and hang.
type world struct {
	*bench
	r       *rand.Rand
	names   int
	numbers uint64
	lost    map[int32]bool // groups of another process
	paused  map[int32]bool
	late    []lateReport
	under   []*attempt // not answered yet
	ended   []*attempt // answered, not stored yet
	ripe    int64      // item time of the last Next
	calm    bool       // the only events are attempts, which all succeed
}

// A lateReport is a report that has not reached the scheduler yet.
type lateReport struct {
	webhook string // empty for a report of a delivery
	group   int32
	pass    func()
}

// For any sequence of events and reports, the scheduler keeps its counters right, exceeds no
// limit, and cancels only attempts beyond a share. It attempts each delivery until it is settled,
// and never twice concurrently. In the end it forgets everything.
func TestScheduler_RandomEvents_KeepsInvariantsAndAttemptsEachDelivery(t *testing.T) {
	cut, forward, requested := 0, 0, 0
	seeds := uint64(120)
	if testbubble.Raced {
		seeds = 20
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		steps, slots := 250, 1+r.IntN(60)
		w := &world{r: r, names: 1 + r.IntN(40), numbers: 40}
		if seed%2 == 0 { // few of everything, so that reports collide
			slots, w.names, w.numbers = 1+r.IntN(6), 1+r.IntN(4), 3
		}
		config := Config{Slots: slots, PerAccount: 1 + r.IntN(slots), PerWebhook: 1 + r.IntN(16)}
		inBench(t, config, func(b *bench) {
			defer func() {
				if b.Failed() {
					b.Logf("seed %d", seed)
				}
			}()
			w.bench, w.lost, w.paused = b, make(map[int32]bool), make(map[int32]bool)
			b.during = func() {
				for range r.IntN(3) {
					w.happen()
				}
			}
			for range steps {
				w.step()
				for _, a := range w.under {
					if a.cut {
						cut++
					}
					if a.item.timing == early {
						forward++
					}
					if a.requests {
						requested++
					}
				}
			}
			w.settleDown()
		})
	}
	if cut == 0 || requested == 0 || forward == 0 && !testbubble.Raced { // few seeds bring anything forward
		t.Errorf("coverage precondition failed: %d attempts canceled, %d brought forward, %d requested; want some of each", cut, forward, requested)
	}
}

// name returns the ID of a webhook, which may not exist.
func (w *world) name() (id, account string) {
	n := w.r.IntN(w.names)
	return fmt.Sprint("w", n, "-"), fmt.Sprint("a", n%5)
}

func (w *world) check() {
	w.Helper()
	w.s.check(w.T, w.ripe)
}

// report queues up to three copies of a report, in any order.
func (w *world) report(webhook string, group int32, pass func()) {
	if w.lost[group] {
		return
	}
	for range 1 + w.r.IntN(3) {
		w.late = append(w.late, lateReport{webhook, group, pass})
	}
	for range w.r.IntN(3) {
		w.pass()
	}
}

// pass passes a report to the scheduler.
func (w *world) pass() {
	if len(w.late) > 0 {
		i := w.r.IntN(len(w.late))
		report := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		report.pass()
	}
}

// change changes a webhook and reports it.
func (w *world) change(id string, change func(*Webhook)) {
	if w.hooks[id] == nil {
		return
	}
	next := *w.hooks[id]
	change(&next)
	next.Version++
	next.Record = &next
	w.hooks[id] = &next
	w.report(id, w.groups[next.Account], func() { w.s.Update(next) })
}

// enqueue adds a pending delivery, or makes an existing one due now.
func (w *world) enqueue() {
	id, account := w.name()
	if w.hooks[id] == nil { // new, or imported again
		w.groups[account] = int32(account[1] - '0')
		hook := &Webhook{ID: id, Account: account, Version: 1, On: true, Standing: Standing(w.r.IntN(int(standings)))}
		hook.Record = hook
		w.hooks[id] = hook
	}
	n := w.r.Uint64N(w.numbers)
	group := w.groups[account]
	if r := w.rows[delivery{id, n}]; r != nil && r.pending {
		r.due = time.Now()
		w.report("", group, func() { w.s.Nudge(id, n) })
	} else {
		r = w.store(id, n, time.Duration(w.r.IntN(2000)-1500)*time.Millisecond)
		r.recovered = w.r.IntN(4) == 0
		p := w.pending(id, n)
		p.First = w.r.IntN(10) == 0
		w.report("", group, func() { w.s.Add([]Pending{p}) })
	}
}

// happen performs a random action outside the dispatcher.
func (w *world) happen() {
	if w.calm {
		w.pass()
		return
	}
	id, account := w.name()
	group := int32(account[1] - '0')
	switch n := w.r.IntN(100); {
	case n < 50:
		w.enqueue()
	case n < 70:
		w.pass()
	case n < 78:
		w.s.Probe(id)
	case n < 82:
		w.change(id, func(hook *Webhook) { hook.On = !hook.On })
	case n < 86:
		w.change(id, func(hook *Webhook) { hook.Standing = Standing(w.r.IntN(int(standings))) })
	case n < 88:
		w.s.Trust(id)
	case n < 90:
		w.erase(id, "")
	case n < 91 && w.r.IntN(4) == 0:
		w.erase("", account)
	case n < 94: // ended by Purge
		d := delivery{id, w.r.Uint64N(w.numbers)}
		if r := w.rows[d]; r != nil && r.pending {
			if r.pending = false; w.r.IntN(2) == 0 {
				w.s.Ended(id, []uint64{d.number})
			}
		}
	case n < 95:
		w.paused[group] = true
		w.s.Pause([]int32{group})
	case n < 97 && w.paused[group]:
		w.lose(group)
	case n < 99 && w.lost[group]:
		w.take(group)
	case n < 100 && w.r.IntN(20) == 0:
		w.restart()
	}
}

// erase deletes a webhook or an account. Queued reports of its deliveries may still arrive.
func (w *world) erase(id, account string) {
	w.forget(id, account, 0)
	for d := range w.rows {
		if d.webhook == id || account != "" && w.hooks[d.webhook].Account == account {
			delete(w.rows, d)
		}
	}
	maps.DeleteFunc(w.hooks, func(other string, hook *Webhook) bool {
		gone := other == id || account != "" && hook.Account == account
		if gone {
			w.late = slices.DeleteFunc(w.late, func(r lateReport) bool { return r.webhook == other })
		}
		return gone
	})
}

// lose moves a group to another process.
func (w *world) lose(group int32) {
	w.forgetGroup(group)
	delete(w.paused, group)
	w.lost[group] = true
	w.late = slices.DeleteFunc(w.late, func(r lateReport) bool { return r.group == group })
}

func (w *world) forgetGroup(group int32) {
	w.s.Forget("", "", group)
	maps.DeleteFunc(w.running, func(d delivery, _ *attempt) bool {
		return w.hooks[d.webhook] != nil && w.groups[w.hooks[d.webhook].Account] == group
	})
}

// take moves a group to this process and reports its deliveries.
func (w *world) take(group int32) {
	delete(w.lost, group)
	w.reportAll(group)
}

func (w *world) reportAll(group int32) {
	for _, d := range slices.SortedFunc(maps.Keys(w.rows), compare) {
		if w.rows[d].pending && w.groups[w.hooks[d.webhook].Account] == group {
			p := w.pending(d.webhook, d.number)
			w.report("", group, func() { w.s.Add([]Pending{p}) })
		}
	}
}

func compare(a, b delivery) int {
	if a.webhook != b.webhook {
		return strings.Compare(a.webhook, b.webhook)
	}
	return int(a.number) - int(b.number)
}

// restart makes the store report everything again.
func (w *world) restart() {
	w.s.Clear(nil)
	w.late = nil
	clear(w.paused)
	for group := range int32(5) {
		if !w.lost[group] {
			w.reportAll(group)
		}
	}
}

// step takes a step of the dispatcher.
func (w *world) step() {
	w.Helper()
	time.Sleep(time.Duration(w.r.ExpFloat64() * float64(100*time.Millisecond)))
	w.happen()
	w.check()
	w.tick()
	w.begin()
	for _, a := range w.under {
		if !a.ended && (a.canceled || !a.ends.After(time.Now())) {
			a.ended = true // the dispatcher notices later
		}
	}
	w.finish(3)
	w.check()
}

// tick calls Tick and checks which attempts it cancels.
func (w *world) tick() {
	w.Helper()
	crowded := w.s.crowdedAccounts > 0 || w.s.requestRoom() == 0
	for _, a := range w.s.accounts {
		crowded = crowded || a.requested >= w.s.requestShare()
	}
	before := make(map[*attempt]bool)
	for _, a := range w.under {
		before[a] = a.cut
	}
	w.s.Tick()
	for _, a := range w.under {
		if !a.cut || before[a] {
			continue
		}
		if a.webhook.second && !a.second && a.canceled {
			continue // canceled after firstLatency
		}
		if a.turn || !a.canceled || a.webhook.health == healthy && !a.ended && !a.requests {
			w.Fatalf("Tick canceled an attempt to %s that is exempt: %+v", a.webhook.id, &a.Slot)
		}
		if !crowded && w.s.spare() > 0 {
			w.Fatalf("Tick canceled an attempt to %s with %d spare slots in the share", a.webhook.id, w.s.spare())
		}
	}
	w.check()
}

// begin begins attempts and loads them.
func (w *world) begin() (again bool) {
	w.Helper()
	limit := min(w.s.Room(), 1+w.r.IntN(50))
	if w.calm {
		limit = w.s.Room()
	}
	if limit <= 0 {
		return false
	}
	starved := w.s.starved
	picked, more := w.pick(limit)
	w.ripe = w.s.t
	if len(picked) > limit {
		w.Fatalf("%d attempts began, want at most %d", len(picked), limit)
	}
	if !more {
		w.s.checkNothingMissed(w.T, starved)
	}
	for _, a := range picked {
		if !a.requests && a.webhook.inFlight > a.webhook.limit() {
			w.Fatalf("%s has %d attempts in flight, want at most %d", a.Webhook(), a.webhook.inFlight, a.webhook.limit())
		}
	}
	w.check()
	w.unread = !w.calm && w.r.IntN(20) == 0
	made := w.load(picked)
	w.unread = false
	for _, a := range made {
		if hook := a.Slot.webhook; hook.paused || hook.dropped || hook.off {
			w.Fatalf("attempt to %s, which is stopped: paused %v, dropped %v, off %v", hook.id, hook.paused, hook.dropped, hook.off)
		}
		took := time.Duration(w.r.ExpFloat64() * float64(60*time.Millisecond))
		if !w.calm && a.Webhook() < "w2" || w.r.IntN(60) == 0 {
			took = 15 * time.Second
		}
		a.ends = time.Now().Add(took)
	}
	w.under = append(w.under, made...)
	w.check()
	return more || len(made) < len(picked)
}

// finish answers attempts that have ended, and stores their results. At random it leaves about one
// in most for later.
func (w *world) finish(most int) {
	w.Helper()
	for _, a := range slices.Clone(w.under) {
		if !a.ended || w.r.IntN(most) == 0 && !w.calm {
			continue
		}
		w.under = slices.DeleteFunc(w.under, func(other *attempt) bool { return other == a })
		outcome := Success
		switch {
		case w.calm:
		case a.canceled:
			outcome = Unknown
		case a.Webhook() > "w3" && w.r.IntN(20) > 0:
			outcome = Failure
		case w.r.IntN(4) == 0:
			outcome = Failure
		}
		w.answer(outcome, a)
		w.ended = append(w.ended, a)
		if outcome == Success {
			w.change(a.Webhook(), func(hook *Webhook) { hook.Standing = Proven })
		} else if outcome == Failure && w.r.IntN(2) == 0 {
			w.change(a.Webhook(), func(hook *Webhook) { hook.Standing = Failing })
		}
		if w.r.IntN(20) == 0 {
			w.s.Suspend(&a.Slot)
		}
	}
	w.check()
	for _, a := range slices.Clone(w.ended) {
		if w.r.IntN(most) == 0 && !w.calm {
			continue
		}
		w.ended = slices.DeleteFunc(w.ended, func(other *attempt) bool { return other == a })
		after := time.Duration(settled)
		if !w.calm && w.r.IntN(3) > 0 {
			after = time.Duration(w.r.IntN(5000)) * time.Millisecond
		}
		if !w.calm && w.r.IntN(8) == 0 { // the attempt does not count
			w.s.End(&a.Slot, Fate{Pending: true, After: after})
		} else {
			w.settle(after, w.r.IntN(4) == 0, a)
		}
	}
}

// settleDown runs the dispatcher until everything is settled. Only NextWake and Wake wake it.
func (w *world) settleDown() {
	w.Helper()
	w.calm = true
	for len(w.late) > 0 {
		w.pass()
	}
	for group := range int32(5) {
		if w.paused[group] {
			w.lose(group)
		}
		if w.lost[group] {
			w.take(group)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.hooks)) {
		w.change(id, func(hook *Webhook) { hook.On = true })
	}
	w.finish(1)
	for deadline := time.Now().Add(20 * time.Minute); ; {
		for len(w.late) > 0 {
			w.pass()
		}
		w.tick()
		again := w.begin()
		wake := w.s.NextWake(time.Now().Add(time.Hour), true)
		for _, a := range w.under {
			if a.canceled {
				a.ends = time.Now()
			}
			wake = earliest(wake, a.ends)
		}
		if again {
			wake = earliest(wake, time.Now().Add(time.Millisecond))
		}
		if time.Sleep(time.Until(wake)); time.Now().After(deadline) {
			break
		}
		for _, a := range w.under {
			a.ended = a.ended || !a.ends.After(time.Now())
		}
		w.finish(1)
		w.check()
	}
	for _, d := range slices.SortedFunc(maps.Keys(w.rows), compare) {
		if r := w.rows[d]; r.pending {
			w.Fatalf("%v stays pending: %+v; webhook state %+v", d, r, w.s.State(d.webhook))
		}
	}
	if len(w.under) > 0 || len(w.ended) > 0 || w.s.Busy() {
		w.Fatalf("%d attempts have not ended, %d are not stored; want none", len(w.under), len(w.ended))
	}
	w.s.Tick()
	w.begin()
	w.s.checkEmpty(w.T)
}
