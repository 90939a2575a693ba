package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// parkedWebhook adds two slow webhooks to an account of four slots. One hangs and uses up the
// account's share, so the other is parked with a due delivery.
func parkedWebhook(b *bench, others int, search bool) {
	b.Helper()
	for i := range others {
		b.add(fmt.Sprint("i", i, "-"), 1)
		b.succeed(b.start(1)...)
	}
	b.add("hangs", 1)
	b.add("slow", 1)
	made := b.started(2, "hangs1", "slow1")
	time.Sleep(2 * minLatency)
	b.s.Tick()
	b.succeed(made[1])
	if !search {
		inspectAgain(b)
	}
	b.add("slow", 2)
	b.started(9)
	if w := b.s.webhooks["slow"]; w.place != parked {
		b.Fatalf("place of the slow webhook = %d, want parked; account: %+v", w.place, w.account.pool)
	}
}

// inspectAgain makes an attempt in another account, which ends the search for late attempts in
// acct.
func inspectAgain(b *bench) {
	b.Helper()
	b.hook("other", Proven, "elsewhere")
	b.add("elsewhere", 1)
	b.started(1, "elsewhere1")
	time.Sleep(2 * minLatency)
	b.s.Tick()
}

func TestTurns_SearchForLateAttemptsEnds_ParkedWebhookGetsItsTurn(t *testing.T) {
	inBench(t, Config{PerAccount: 4}, func(b *bench) {
		parkedWebhook(b, 2, true)
		inspectAgain(b)
		b.started(9, "slow2")
	})
}

func TestTurns_OthersAreForgotten_ParkedWebhookGetsItsTurn(t *testing.T) {
	inBench(t, Config{PerAccount: 4}, func(b *bench) {
		parkedWebhook(b, 6, false)
		for i := range 4 {
			b.forget(fmt.Sprint("i", i, "-"), "", 0)
		}
		b.started(9, "slow2")
	})
}

func TestTurns_UnparkedWhileATurnBegins_QueueStaysInOrder(t *testing.T) {
	inBench(t, Config{PerAccount: 8}, func(b *bench) {
		b.hook("other", Proven, "later")
		for _, id := range []string{"first", "later", "second", "parked"} {
			b.add(id, 1, 2)
		}
		b.s.lock()
		for i, id := range []string{"first", "later", "second", "parked"} {
			w := b.s.webhooks[id]
			w.slow, w.turn = true, b.s.now.Add(time.Duration([]int{-9, -1, -8, -7}[i])*time.Second)
			b.s.setHealth(w, slow)
			b.s.arrange(w)
		}
		w := b.s.webhooks["parked"]
		b.s.queues[slow].remove(w)
		w.place, w.account.parked = parked, []*webhook{w}
		b.s.mu.Unlock()
		b.started(1, "first1")
		b.s.check(b.T, b.s.t)
		b.started(3, "second1", "parked1", "later1")
	})
}
