package webhooks

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A paceBench drives a pacer as the run loop does, with deliveries without end.
type paceBench struct {
	*testing.T
	p       *pacer
	now     time.Time
	flights []*flight
}

func newPaceBench(t *testing.T, config Config) *paceBench {
	config, err := config.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &paceBench{T: t, p: newPacer(config), now: time.Now()}
}

func (b *paceBench) begin(account, webhook string, inTurn bool) *flight {
	return b.beginAsked(account, webhook, inTurn, false)
}

// beginAsked begins a flight that somebody may have asked for. Of an odd account all
// webhooks are proven.
func (b *paceBench) beginAsked(account, webhook string, inTurn, asked bool) *flight {
	f := &flight{begun: b.now, inTurn: inTurn}
	f.settlement.Task.Webhook, f.settlement.Task.Probe = &Webhook{ID: webhook, Account: account}, asked
	if account == "a1" || account == "a3" {
		f.settlement.Task.Webhook.ProvenAt = b.now
	}
	b.p.begin(f)
	b.flights = append(b.flights, f)
	return f
}

// end ends one of the flights.
func (b *paceBench) end(i int, outcome Outcome, took time.Duration) {
	f := b.flights[i]
	b.flights[i] = b.flights[len(b.flights)-1]
	b.flights = b.flights[:len(b.flights)-1]
	f.settlement.Outcome, f.settlement.Attempt.Duration = outcome, took
	if !f.stop.isOver() {
		f.stop.end()
	}
	b.p.end([]*flight{f}, b.now)
	b.p.settled([]*flight{f})
}

// check compares what the pacer counts with what is.
func (b *paceBench) check() {
	b.Helper()
	p := b.p
	inFlight, troubled, downs, lagging, asked, unproven := 0, 0, 0, 0, 0, 0
	accounts := map[string][2]int{}
	parkedAt, inLine := map[*accountTrack]int{}, map[*accountTrack]int{}
	for id, w := range p.tracks {
		inFlight += len(w.flights)
		count := accounts[w.account.id]
		count[0] += len(w.flights)
		cut, late, askedOf, unprovenOf := 0, 0, 0, 0
		for i, f := range w.flights {
			if f.track != w || f.place != i {
				b.Fatalf("a flight of %s is lost", id)
			}
			if f.cut {
				cut++
			}
			if f.lagging {
				late++
			}
			if f.asked {
				askedOf++
			}
			if f.unproven {
				unprovenOf++
			}
			if f.cut && (f.asked || f.unproven) {
				b.Fatalf("%s: a flight that was cut short counts", id)
			}
		}
		if unprovenOf != w.unproven || askedOf > maxAsked {
			b.Fatalf("%s: %d unproven, counted %d; %d asked for", id, unprovenOf, w.unproven, askedOf)
		}
		if asked += askedOf; w.condition == fit {
			unproven += unprovenOf
		}
		if cut != w.cut || late != w.lagging {
			b.Fatalf("%s: %d cut and %d late, counted %d and %d", id, cut, late, w.cut, w.lagging)
		}
		lagging += late
		if w.condition != fit {
			troubled += len(w.flights) - cut
			count[1] += len(w.flights) - cut
		}
		if w.condition >= ailing {
			downs += len(w.flights) - cut
		}
		accounts[w.account.id] = count
		if w.cap < 1 || w.cap > p.perWebhook {
			b.Fatalf("%s: cap %d", id, w.cap)
		}
		want, listed := p.caps[id]
		switch {
		case w.condition != fit && (!listed || want != 0), w.condition == fit && listed && want != w.cap, w.condition == fit && !listed && w.cap != p.firstCap:
			b.Fatalf("%s: condition %d, cap %d, listed %d %v", id, w.condition, w.cap, want, listed)
		}
		waits := w.condition != fit && len(w.flights) < w.limit()
		if w.place == parked {
			parkedAt[w.account]++
		}
		if (w.place != nowhere) != waits || w.place >= 0 && p.lines[w.condition][w.place] != w {
			b.Fatalf("%s: condition %d with %d of %d in flight, place %d", id, w.condition, len(w.flights), w.limit(), w.place)
		}
		if w.condition != w.assess() || w.condition == fit && w.lagging > 0 {
			b.Fatalf("%s: condition %d after %d failures, %d late", id, w.condition, w.failures, w.lagging)
		}
	}
	if asked != p.asked || unproven != p.unproven.inFlight {
		b.Fatalf("%d asked for and %d unproven, counted %d and %d", asked, unproven, p.asked, p.unproven.inFlight)
	}
	full := 0
	for id, a := range p.accounts {
		if got := accounts[id]; got[0] != a.inFlight || got[1] != a.troubled || a.offered != 0 {
			b.Fatalf("account %s: %v, counted %+v", id, got, a)
		}
		if a.inFlight >= p.perAccount {
			full++
		}
	}
	if inFlight != p.inFlight || inFlight != len(b.flights) || troubled != p.troubled || len(p.tracks) != p.pool.webhooks || downs != p.failing || full != p.crowded || len(p.accounts) != len(accounts) {
		b.Fatalf("in flight %d, troubled %d, failing %d, crowded %d; counted %d, %d, %d, %d", inFlight, troubled, downs, full, p.inFlight, p.troubled, p.failing, p.crowded)
	}
	if p.inFlight > p.slots || p.tracked.Len() != len(p.tracks) {
		b.Fatalf("%d of %d slots, %d tracks of %d", p.inFlight, p.slots, p.tracked.Len(), len(p.tracks))
	}
	for _, line := range p.lines {
		for i, w := range line {
			if i > 0 && w.turn.Before(line[(i-1)/2].turn) {
				b.Fatal("a line is out of order")
			}
			inLine[w.account]++
		}
	}
	for a, n := range parkedAt {
		if inLine[a] < a.spare() {
			b.Fatalf("account %s: %d parked, %d in line, %d slots to spare", a.id, n, inLine[a], a.spare())
		}
	}
}

// Whatever happens, the pacer's counts are right, no limit is exceeded, and what is
// cut short is only what holds slots beyond the share.
func TestPacerAtRandom(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		slots := 1 + random.IntN(60)
		b := newPaceBench(t, Config{Concurrency: slots, PerAccount: 1 + random.IntN(slots)})
		p := b.p
		names := 1 + random.IntN(40)
		for range 2000 {
			b.now = b.now.Add(time.Duration(random.ExpFloat64() * float64(200*time.Millisecond)))
			before := 0
			for _, f := range b.flights {
				if f.cut {
					before++
				}
			}
			asks := p.asks()
			p.look(b.now)
			for _, f := range b.flights {
				if f.cut && (f.inTurn || f.track.condition == fit && !f.stop.isOver()) {
					t.Fatal("a flight was cut short that may not be")
				}
				if f.cut {
					before--
				}
			}
			if before < 0 && p.spare() > 0 && p.crowded == 0 && asks > 0 {
				t.Fatalf("cut short with %d slots of the share to spare", p.spare())
			}
			b.check()
			caps, turns := p.offer(b.now, p.free())
			if turns > 0 {
				if turns > p.spare() || turns > p.free() {
					t.Fatalf("%d turns", turns)
				}
				for id, most := range caps {
					w := p.tracks[id]
					if p.asks() > 0 && p.free() > 0 && !w.account.full() && random.IntN(5) == 0 {
						b.beginAsked(w.account.id, id, true, true)
						most++ // it does not come out of the turns
					}
					for len(w.flights) < most && p.free() > 0 && !w.account.full() && random.IntN(5) > 0 {
						b.begin(w.account.id, id, true)
					}
				}
			}
			p.answered(b.now, nil)
			b.check()
			for range random.IntN(10) {
				n := random.IntN(names)
				account, webhook := fmt.Sprint("a", n%5), fmt.Sprint("w", n)
				most, special := p.caps[webhook]
				if !special {
					most = p.firstCap
				}
				inFlight := 0
				if w := p.tracks[webhook]; w != nil {
					inFlight = len(w.flights)
				}
				full := p.accounts[account] != nil && p.accounts[account].inFlight >= p.perAccount
				if p.asks() > 0 && p.free() > 0 && !full && random.IntN(10) == 0 {
					b.beginAsked(account, webhook, false, true)
					continue
				}
				if p.free() > 0 && inFlight < most && !full {
					b.begin(account, webhook, false)
				}
			}
			b.check()
			p.plan(b.now, b.now, true)
			for i := len(b.flights) - 1; i >= 0; i-- {
				f := b.flights[i]
				age := b.now.Sub(f.begun)
				switch hangs, fails := f.track.id < "w2", f.track.id > "w5"; {
				case f.cut:
					b.end(i, Release, age)
				case !f.stop.isOver() && random.IntN(50) == 0:
					f.stop.end() // and it takes a while to be recorded
				case random.IntN(3) == 0 && (!hangs || age > 15*time.Second):
					outcome := Deliver
					switch {
					case fails && random.IntN(20) > 0:
						outcome = Retry
					case random.IntN(4) == 0:
						outcome = Outcome(random.IntN(4))
					}
					b.end(i, outcome, age)
				}
			}
			b.check()
		}
		// Once nothing happens any more it forgets everything.
		for len(b.flights) > 0 {
			b.end(0, Deliver, 0)
		}
		for range 1000 {
			b.now = b.now.Add(time.Second)
			p.look(b.now)
			p.forgetIdle(b.now)
			p.offer(b.now, p.free())
			p.answered(b.now, nil)
			b.check()
		}
		if len(p.tracks)+len(p.accounts)+len(p.caps)+len(p.lines[slow])+len(p.lines[ailing])+len(p.lines[down])+p.young.Len()+p.tardy.Len() > 0 {
			t.Fatalf("it remembers %d webhooks, %d accounts, %d caps", len(p.tracks), len(p.accounts), len(p.caps))
		}
	}
}
