package limiter

import (
	"testing"
	"time"
)

// A webhook that is suspended when its turn has come does not keep the account's other
// webhooks waiting.
func TestSuspendedWebhooksGiveUpTheirTurns(t *testing.T) {
	b := newBench(t, 256, 4) // of its account's slots, webhooks that are down have one
	attempts := map[string]*attempt{}
	attemptOf := func(webhook string, turn bool) *attempt {
		a := new(attempt)
		b.l.Begin(&a.Slot, a, Start{Webhook: webhook, Account: "acct", At: b.now, Turn: turn})
		return a
	}
	for _, webhook := range []string{"w1", "w2", "w3"} {
		for range openAfter {
			b.begin("acct", webhook, false)
			b.end(0, Failure, time.Millisecond)
		}
		attempts[webhook] = attemptOf(webhook, false) // ends, and is not recorded yet
		b.l.Release(&attempts[webhook].Slot, b.now)
	}
	turns := func() []string {
		b.now = b.now.Add(10 * minPause)
		webhooks, _ := b.l.Turns(b.now, 10)
		if len(webhooks) != 1 {
			t.Fatalf("%v have a turn", webhooks)
		}
		return webhooks
	}
	probe := attemptOf(turns()[0], true)
	b.l.EndTurns(b.now, false, nil)
	b.l.Release(&probe.Slot, b.now) // and it is the turn of one of the others
	var last string
	for id, w := range b.l.webhooks {
		if w.place == parked {
			last = id
		}
	}
	for id, a := range attempts {
		if id != last {
			b.l.Suspend(&a.Slot)
		}
	}
	if next := turns()[0]; last == "" || next != last {
		t.Errorf("%q has a turn, want %q", next, last)
	}
}

// A turn in which nothing was begun puts the next one off by a pause, unless there may be more.
func TestTurnsThatGetNothing(t *testing.T) {
	b := newBench(t, 256, 4)
	for range openAfter {
		b.begin("acct", "w", false)
		b.end(0, Failure, time.Millisecond)
	}
	b.now = b.now.Add(10 * minPause)
	for _, more := range []bool{true, true, false} {
		if _, turns := b.l.Turns(b.now, 10); turns != 1 {
			t.Fatalf("%d turns, want 1", turns)
		}
		b.l.EndTurns(b.now, more, nil)
	}
	if _, turns := b.l.Turns(b.now, 10); turns != 0 {
		t.Errorf("%d turns after one that got nothing, want none", turns)
	}
}
