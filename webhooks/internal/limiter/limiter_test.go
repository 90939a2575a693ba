package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A bench drives a limiter as a dispatcher does, with deliveries without end.
type bench struct {
	*testing.T
	l        *Limiter
	now      time.Time
	attempts []*attempt
}

type attempt struct {
	Slot
	canceled, ended bool
}

func (a *attempt) Cancel()                    { a.canceled = true }
func (a *attempt) Ended() bool                { return a.ended }
func (a *attempt) Wait(context.Context) error { return nil }

func newBench(t *testing.T, slots, perAccount int) *bench {
	l := New(Config{Slots: slots, PerWebhook: 16, PerAccount: perAccount, MaxUnrecorded: 1024, Timeout: 15 * time.Second})
	return &bench{T: t, l: l, now: time.Now()}
}

func (b *bench) begin(account, webhook string, turn bool) {
	b.beginRequested(account, webhook, turn, false)
}

// beginRequested begins an attempt that may have been requested. Of an odd account
// all webhooks are proven.
func (b *bench) beginRequested(account, webhook string, turn, requested bool) {
	a := new(attempt)
	b.l.Begin(&a.Slot, a, Start{
		Webhook: webhook, Account: account, At: b.now, Turn: turn, Requested: requested,
		Proven: account == "a1" || account == "a3",
	})
	b.attempts = append(b.attempts, a)
}

// end ends one of the attempts.
func (b *bench) end(i int, outcome Outcome, took time.Duration) (rest time.Duration) {
	a := b.attempts[i]
	b.attempts[i] = b.attempts[len(b.attempts)-1]
	b.attempts = b.attempts[:len(b.attempts)-1]
	a.ended = true
	rest = b.l.Observe(&a.Slot, outcome, took, b.now)
	b.l.Release(&a.Slot, b.now)
	b.l.Recorded(&a.Slot, b.now)
	return rest
}

// check compares what the limiter counts with what is.
func (b *bench) check() {
	b.Helper()
	l := b.l
	inFlight, restricted, failing, requested, unproven, slowly := 0, 0, 0, 0, 0, 0
	accounts := map[string][4]int{}
	parkedAt, queued := map[*account]int{}, map[*account]int{}
	for id, w := range l.webhooks {
		inFlight += len(w.slots)
		count := accounts[w.account.id]
		count[0] += len(w.slots)
		cut, late, requestedOf, unprovenOf := 0, 0, 0, 0
		for i, s := range w.slots {
			if s.webhook != w || s.index != i {
				b.Fatalf("a slot of %s is lost", id)
			}
			if s.cut {
				cut++
			}
			if s.late {
				late++
			}
			if s.requested {
				requestedOf++
			}
			if s.unproven {
				unprovenOf++
			}
			if s.cut && (s.requested || s.unproven) {
				b.Fatalf("%s: an attempt that was cut short counts", id)
			}
		}
		if unprovenOf != w.unproven || requestedOf > maxRequested {
			b.Fatalf("%s: %d unproven, counted %d; %d requested", id, unprovenOf, w.unproven, requestedOf)
		}
		count[3] += requestedOf
		if requested += requestedOf; w.health == healthy {
			unproven += unprovenOf
		}
		if cut != w.cut || late != w.late {
			b.Fatalf("%s: %d cut and %d late, counted %d and %d", id, cut, late, w.cut, w.late)
		}
		if w.health != healthy {
			restricted += len(w.slots) - cut
			count[1] += len(w.slots) - cut
		}
		if w.health >= slowFailing {
			failing += len(w.slots) - cut
		}
		if w.health == slow {
			slowly++
			count[2]++
		}
		accounts[w.account.id] = count
		if w.cap < 1 || w.cap > l.perWebhook {
			b.Fatalf("%s: cap %d", id, w.cap)
		}
		if got := l.Cap(id, true); w.health != healthy && got != 0 || w.health == healthy && got != w.cap {
			b.Fatalf("%s: health %d, cap %d, in a claim %d", id, w.health, w.cap, got)
		}
		waits := w.health != healthy && len(w.slots) < w.limit()
		if w.place == parked {
			parkedAt[w.account]++
		}
		if (w.place != nowhere) != waits || w.place >= 0 && l.queues[w.health].Heap[w.place] != w {
			b.Fatalf("%s: health %d with %d of %d in flight, place %d", id, w.health, len(w.slots), w.limit(), w.place)
		}
		if w.health != w.assess() || w.health == healthy && w.late > 0 {
			b.Fatalf("%s: health %d after %d failures, %d late", id, w.health, w.failures, w.late)
		}
	}
	if requested != l.requested || unproven != l.unproven.inFlight || slowly != l.pool.slow {
		b.Fatalf("%d requested, %d unproven and %d slow; counted %d, %d and %d", requested, unproven, slowly, l.requested, l.unproven.inFlight, l.pool.slow)
	}
	full := 0
	for id, a := range l.accounts {
		if got := accounts[id]; got[0] != a.inFlight || got[1] != a.restricted || got[2] != a.slow || got[3] != a.requested || a.requested > l.requestShare() || a.offered != 0 {
			b.Fatalf("account %s: %v, counted %+v", id, got, a)
		}
		if a.inFlight >= l.perAccount {
			full++
		}
	}
	if inFlight != l.inFlight || inFlight != len(b.attempts) || restricted != l.restricted || len(l.webhooks) != l.pool.webhooks || failing != l.failing || full != l.crowdedAccounts || len(l.accounts) != len(accounts) {
		b.Fatalf("in flight %d, restricted %d, failing %d, crowded %d; counted %d, %d, %d, %d", inFlight, restricted, failing, full, l.inFlight, l.restricted, l.failing, l.crowdedAccounts)
	}
	if l.inFlight > l.slots || l.byUse.Len() != len(l.webhooks) {
		b.Fatalf("%d of %d slots, %d webhooks of %d", l.inFlight, l.slots, l.byUse.Len(), len(l.webhooks))
	}
	for _, queue := range l.queues {
		for i, w := range queue.Heap {
			if i > 0 && w.turn.Before(queue.Heap[(i-1)/2].turn) {
				b.Fatal("a queue is out of order")
			}
			queued[w.account]++
		}
	}
	for a, n := range parkedAt {
		if queued[a] < a.spare() {
			b.Fatalf("account %s: %d parked, %d queued, %d slots to spare", a.id, n, queued[a], a.spare())
		}
	}
}

// At any time the limiter's counts are right, no limit is exceeded, and what is
// cut short is only what holds slots beyond the share.
func TestLimiterAtRandom(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		slots := 1 + random.IntN(60)
		b := newBench(t, slots, 1+random.IntN(slots))
		l := b.l
		names := 1 + random.IntN(40)
		for range 2000 {
			b.now = b.now.Add(time.Duration(random.ExpFloat64() * float64(200*time.Millisecond)))
			before := 0
			for _, a := range b.attempts {
				if a.cut {
					before++
				}
			}
			crowded := l.crowdedAccounts > 0 || l.RequestRoom() == 0
			for _, a := range l.accounts {
				crowded = crowded || l.RequestRoomOf(a.id) == 0
			}
			l.Tick(b.now)
			for _, a := range b.attempts {
				if a.cut && (a.turn || a.webhook.health == healthy && !a.ended) {
					t.Fatal("an attempt was cut short that may not be")
				}
				if a.cut != a.canceled {
					t.Fatalf("an attempt that was cut short: %v, was canceled: %v", a.cut, a.canceled)
				}
				if a.cut {
					before--
				}
			}
			if before < 0 && l.spare() > 0 && !crowded {
				t.Fatalf("cut short with %d slots of the share to spare", l.spare())
			}
			b.check()
			chosen, turns := l.Turns(b.now, l.free())
			if turns > 0 {
				if turns > l.spare() || turns > l.free() {
					t.Fatalf("%d turns", turns)
				}
				for _, id := range chosen {
					w, most := l.webhooks[id], l.TurnCap(id, false)
					if l.requestRoom() > 0 && l.RequestRoomOf(w.account.id) > 0 && l.free() > 0 && !w.account.full() && random.IntN(5) == 0 {
						b.beginRequested(w.account.id, id, true, true)
						most++ // it does not come out of the turns
					}
					for len(w.slots) < most && l.free() > 0 && !w.account.full() && random.IntN(5) > 0 {
						b.begin(w.account.id, id, true)
					}
				}
			}
			l.EndTurns(b.now, false, nil)
			b.check()
			for range random.IntN(10) {
				n := random.IntN(names)
				account, webhook := fmt.Sprint("a", n%5), fmt.Sprint("w", n)
				most := l.Cap(webhook, true)
				inFlight := 0
				if w := l.webhooks[webhook]; w != nil {
					inFlight = len(w.slots)
				}
				full := l.accounts[account] != nil && l.accounts[account].inFlight >= l.perAccount
				if l.requestRoom() > 0 && l.RequestRoomOf(account) > 0 && l.free() > 0 && !full && random.IntN(10) == 0 {
					b.beginRequested(account, webhook, false, true)
					continue
				}
				if l.free() > 0 && inFlight < most && !full {
					b.begin(account, webhook, false)
				}
			}
			b.check()
			l.NextWake(b.now, b.now, true)
			for i, a := range slices.Backward(b.attempts) {

				age := b.now.Sub(a.begun)
				switch hangs, fails := a.webhook.id < "w2", a.webhook.id > "w5"; {
				case a.cut:
					b.end(i, Unknown, age)
				case !a.ended && random.IntN(50) == 0:
					a.ended = true // and it takes a while to be recorded
				case random.IntN(3) == 0 && (!hangs || age > 15*time.Second):
					outcome := Success
					switch {
					case fails && random.IntN(20) > 0:
						outcome = Failure
					case random.IntN(4) == 0:
						outcome = [...]Outcome{Unknown, Failure, Success, Failure}[random.IntN(4)]
					}
					b.end(i, outcome, age)
				}
			}
			b.check()
		}
		// Once nothing happens any more it forgets everything.
		for len(b.attempts) > 0 {
			b.end(0, Success, 0)
		}
		for range 1000 {
			b.now = b.now.Add(time.Second)
			l.Tick(b.now)
			l.forgetIdle(b.now)
			l.Turns(b.now, l.free())
			l.EndTurns(b.now, false, nil)
			b.check()
		}
		if len(l.webhooks)+len(l.accounts)+len(l.queues[slow].Heap)+len(l.queues[slowFailing].Heap)+len(l.queues[open].Heap)+l.young.Len()+l.late.Len() > 0 {
			t.Fatalf("it remembers %d webhooks, %d accounts", len(l.webhooks), len(l.accounts))
		}
	}
}
