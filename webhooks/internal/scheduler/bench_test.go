package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// A bench connects a scheduler to a small model of a store and to a dispatcher. The test runs
// their steps in virtual time.
type bench struct {
	*testing.T
	s *Scheduler

	hooks  map[string]*Webhook
	groups map[string]int32 // of accounts
	rows   map[delivery]*row
	unread bool   // every load returns Unread
	loads  int    // loaded deliveries
	during func() // called between a load and its answer

	running map[delivery]*attempt // loaded attempts, except forgotten ones
	wakes   int                   // calls to Config.Wake
}

type delivery struct {
	webhook string
	number  uint64
}

// A row is a delivery in the store.
type row struct {
	pending   bool
	due       time.Time
	attempts  int
	recovered bool
}

type attempt struct {
	Slot
	canceled, ended bool
	done            chan struct{} // if not nil, Wait waits for it
	record          any           // record at the start of the attempt
	requests        bool          // begun by a request
	ends            time.Time     // time of the receiver's answer, in random tests
}

func (a *attempt) Cancel()     { a.canceled = true }
func (a *attempt) Ended() bool { return a.ended }

func (a *attempt) Wait(ctx context.Context) error {
	if a.done == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attempt) delivery() delivery { return delivery{a.Webhook(), a.Number()} }

const acct = "acct"

// inBench runs a test in a bubble. Limits that config leaves out are set too high to matter.
func inBench(t *testing.T, config Config, test func(*bench)) {
	t.Helper()
	testbubble.Run(t, func(t *testing.T) { test(newBench(t, config)) })
}

func newBench(t *testing.T, config Config) *bench {
	for _, field := range []*int{&config.Slots, &config.PerAccount, &config.MaxUnrecorded} {
		if *field == 0 {
			*field = 1024
		}
	}
	if config.PerWebhook == 0 {
		config.PerWebhook = 16
	}
	config.Timeout = 15 * time.Second
	b := &bench{
		T: t, hooks: make(map[string]*Webhook), groups: make(map[string]int32), rows: make(map[delivery]*row),
		running: make(map[delivery]*attempt), during: func() {},
	}
	config.Wake = func() { b.wakes++ }
	b.s = New(config)
	return b
}

// hook adds webhooks to an account, or changes their standing.
func (b *bench) hook(account string, standing Standing, ids ...string) {
	for _, id := range ids {
		if w := b.hooks[id]; w != nil {
			b.update(id, func(w *Webhook) { w.Standing = standing })
			continue
		}
		w := &Webhook{ID: id, Account: account, Version: 1, On: true, Standing: standing}
		w.Record = w
		b.hooks[id] = w
	}
}

// update changes a webhook and reports it.
func (b *bench) update(id string, change func(*Webhook)) {
	w := *b.hooks[id]
	change(&w)
	w.Version++
	w.Record = &w
	b.hooks[id] = &w
	b.s.Update(w)
}

func (b *bench) turn(id string, on bool) { b.update(id, func(w *Webhook) { w.On = on }) }

// store makes a delivery pending, without a report.
func (b *bench) store(id string, number uint64, after time.Duration) *row {
	if b.hooks[id] == nil {
		b.hook(acct, Proven, id)
	}
	r := b.rows[delivery{id, number}]
	if r == nil {
		r = new(row)
		b.rows[delivery{id, number}] = r
	}
	r.pending, r.due = true, time.Now().Add(after)
	return r
}

// pending returns a report of a delivery.
func (b *bench) pending(id string, number uint64) Pending {
	w, r := b.hooks[id], b.rows[delivery{id, number}]
	return Pending{
		Webhook: *w, Group: b.groups[w.Account], Number: number, Due: r.due, Attempts: r.attempts, Recovered: r.recovered,
	}
}

// add makes deliveries of a webhook pending, due now, and reports them. Unless hook was called
// before, it adds a proven webhook to acct.
func (b *bench) add(id string, numbers ...uint64) {
	for _, n := range numbers {
		b.addAfter(id, n, 0)
	}
}

// addAfter is like add, for a delivery that is due later.
func (b *bench) addAfter(id string, number uint64, after time.Duration) {
	b.store(id, number, after)
	b.s.Add([]Pending{b.pending(id, number)})
}

// addFirst is like add, for a delivery that is attempted first.
func (b *bench) addFirst(id string, number uint64) {
	b.store(id, number, 0)
	p := b.pending(id, number)
	p.First = true
	b.s.Add([]Pending{p})
}

// addRecovered is like add, for recovered deliveries.
func (b *bench) addRecovered(id string, numbers ...uint64) {
	for _, n := range numbers {
		b.store(id, n, 0).recovered = true
		b.s.Add([]Pending{b.pending(id, n)})
	}
}

// nudge makes a pending delivery due now, and reports this to the scheduler.
func (b *bench) nudge(id string, number uint64) {
	b.rows[delivery{id, number}].due = time.Now()
	b.s.Nudge(id, number)
}

// forget forgets webhooks as Scheduler.Forget does, and their attempts.
func (b *bench) forget(webhookID, account string, group int32) {
	b.s.Forget(webhookID, account, group)
	for d := range b.running {
		switch {
		case webhookID != "" && d.webhook == webhookID,
			webhookID == "" && account != "" && b.hooks[d.webhook].Account == account,
			webhookID == "" && account == "" && b.groups[b.hooks[d.webhook].Account] == group:
			delete(b.running, d)
		}
	}
}

// pick begins up to limit attempts.
func (b *bench) pick(limit int) (picked []*attempt, more bool) {
	more = b.s.Next(limit, limit, func() (*Slot, Attempt) {
		a := new(attempt)
		picked = append(picked, a)
		return &a.Slot, a
	})
	for _, a := range picked {
		a.requests = a.requested
	}
	return picked, more
}

// load loads the picked deliveries, and returns the attempts that proceed.
func (b *bench) load(picked []*attempt) (made []*attempt) {
	b.Helper()
	found := make([]Loaded, len(picked))
	for i, a := range picked {
		b.loads++
		r, w := b.rows[a.delivery()], b.hooks[a.Webhook()]
		switch {
		case b.unread:
			found[i].State = Unread
		case r == nil || !r.pending || w == nil:
		default:
			found[i] = Loaded{State: Passive, Webhook: w, Attempts: r.attempts, Due: r.due}
			if w.On {
				found[i].State = Ready
			}
		}
	}
	b.during()
	for i, a := range picked {
		d := a.delivery()
		var ok bool
		if a.record, ok = b.s.Loaded(&a.Slot, &found[i]); !ok {
			continue
		}
		if other := b.running[d]; other != nil {
			b.Fatalf("two concurrent attempts of %v", d)
		}
		if by := time.Until(found[i].Due); by > dueTolerance && a.item.timing != early {
			b.Fatalf("attempt of %v made %v before it is due", d, by)
		}
		b.running[d] = a
		made = append(made, a)
	}
	return made
}

// start begins up to limit attempts and loads them.
func (b *bench) start(limit int) []*attempt {
	b.Helper()
	picked, _ := b.pick(limit)
	return b.load(picked)
}

// started starts attempts. It fails the test unless they are attempts of the given deliveries, in
// order.
func (b *bench) started(limit int, want ...string) []*attempt {
	b.Helper()
	made := b.start(limit)
	b.want("attempts", names(made), want...)
	return made
}

func names(attempts []*attempt) (list []string) {
	for _, a := range attempts {
		list = append(list, fmt.Sprint(a.Webhook(), a.Number()))
	}
	return list
}

func (b *bench) want(what string, got []string, want ...string) {
	b.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		b.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// answer ends attempts and frees their slots.
func (b *bench) answer(evidence Evidence, attempts ...*attempt) {
	for _, a := range attempts {
		a.ended = true
		b.s.Observe(&a.Slot, evidence, time.Since(a.begun))
	}
	for _, a := range attempts {
		b.s.FreeSlot(&a.Slot, false)
		if b.running[a.delivery()] == a {
			delete(b.running, a.delivery())
		}
	}
}

const settled = -1

// settle stores the result of answered attempts: the deliveries are due again after the given time,
// or settled if it is negative.
func (b *bench) settle(after time.Duration, asked bool, attempts ...*attempt) {
	for _, a := range attempts {
		r := b.rows[a.delivery()]
		number := int(a.item.attempts) + 1
		fate := Fate{Pending: after >= 0, After: max(0, after), Asked: asked}
		switch {
		case r == nil || !r.pending || r.attempts >= number:
			fate = Fate{Stale: true}
		default:
			r.attempts, r.pending, r.due = number, after >= 0, time.Now().Add(after)
			if fate.Pending {
				fate.Attempts = number
			}
		}
		b.s.End(&a.Slot, fate)
	}
}

// succeed ends attempts with success.
func (b *bench) succeed(attempts ...*attempt) {
	b.answer(Success, attempts...)
	b.settle(settled, false, attempts...)
}

// fail ends attempts with failure. Their deliveries are due again later.
func (b *bench) fail(after time.Duration, attempts ...*attempt) {
	b.answer(Failure, attempts...)
	b.settle(after, false, attempts...)
}

// open opens the circuit breaker of a webhook with failing deliveries, numbered from 900.
func (b *bench) open(id string) {
	b.Helper()
	for n := range uint64(openAfter) {
		b.addFirst(id, 900+n)
		made := b.start(1)
		if len(made) != 1 || made[0].Webhook() != id {
			b.Fatalf("%d attempts, want one to %s", len(made), id)
		}
		b.answer(Failure, made...)
		b.settle(settled, false, made...)
	}
	if !b.s.State(id).Open {
		b.Fatalf("the circuit breaker of %s is closed after %d failures: %+v", id, openAfter, b.s.State(id))
	}
}

// wake returns how long the dispatcher may sleep, at most an hour.
func (b *bench) wake() time.Duration {
	return time.Until(b.s.NextWake(time.Now().Add(time.Hour), true))
}

func (b *bench) wantPending(want int) {
	b.Helper()
	if got := b.s.Backlog("").Pending; got != want {
		b.Errorf("%d deliveries are pending, want %d", got, want)
	}
}
