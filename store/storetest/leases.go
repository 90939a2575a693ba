package storetest

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// leases tests what the contract says of leases that run out.
func leases(run runner) {
	short := webhooks.Claim{Limit: 9, Lease: shortLease}
	long := webhooks.Claim{Limit: 9, Lease: longLease}

	run("what is leased is not claimed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		due := t.delivery("acct", "event")
		task := t.claimAll(1)[0]
		t.claimAll(0)
		wantSame(t, "EventDeliveries", t.delivery("acct", "event"), due)
		t.settle(settlement(task, webhooks.Deliver))
		t.claimAll(0)
	})

	run("a lease that runs out makes it claimable again, under another token", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		first := t.await(1, short)[0]
		second := t.await(1, short)[0]
		third := t.await(1, long)[0]
		if first.Token == second.Token || second.Token == third.Token || third.Token == first.Token {
			t.Errorf("tokens %d, %d, %d are not three", first.Token, second.Token, third.Token)
		}
		// Claims whose lease ran out count.
		wantSame(t, "numbers of the attempts", []int{first.Attempt, second.Attempt, third.Attempt}, []int{1, 2, 3})
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, nil)
		t.settle(settlement(third, webhooks.Retry))
		wantSame(t, "number of the attempt after", t.await(1, long)[0].Attempt, 4)
	})

	run("those that were taken back are counted", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		lapsed := func(webhookID string, want uint64) {
			t.Helper()
			backlog, err := t.store.Backlog(t.Context(), webhookID)
			t.must(err)
			wantSame(t, "ExpiredLeases", backlog.ExpiredLeases, want)
		}
		tasks := t.await(3, short)
		t.settle(settlement(tasks[0], webhooks.Deliver))
		lapsed("", 0)
		tasks = t.await(2, short)
		lapsed("", 2)
		lapsed("webhook", 0)
		t.await(2, long)
		lapsed("", 4)
		t.wantStale(settlement(tasks[0], webhooks.Deliver))
		lapsed("", 4)
	})

	run("it makes room", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 4, 1)
		claim := webhooks.Claim{Limit: 9, Cap: each(2), Lease: shortLease}
		t.await(2, claim)
		t.await(2, claim)
		t.await(2, webhooks.Claim{Limit: 9, Cap: each(2), Lease: longLease})
		wantSame(t, "number of tasks", len(t.claim(claim)), 0)
	})

	run("a settlement after another claim is stale", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		first := t.await(1, short)[0]
		second := t.await(1, long)[0]
		for _, outcome := range []webhooks.Outcome{webhooks.Retry, webhooks.Deliver, webhooks.GiveUp} {
			t.wantStale(settlement(first, outcome))
		}
		t.settle(settlement(first, webhooks.Release))
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, nil)
		t.claimAll(0)
		t.settle(settlement(second, webhooks.Deliver))
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, []webhooks.Attempt{attemptOf(second)})
	})

	run("one that ran out stays current until a later claim", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 4, 1)
		tasks := t.await(4, webhooks.Claim{Limit: 4, Lease: 500 * time.Millisecond})
		time.Sleep(550 * time.Millisecond)
		later := settlement(tasks[1], webhooks.Retry)
		later.RetryAfter = time.Hour
		t.settle(settlement(tasks[0], webhooks.Deliver), later, settlement(tasks[2], webhooks.GiveUp), settlement(tasks[3], webhooks.Release))
		wantSame(t, "State", t.delivery("acct", tasks[0].Event.ID).State, webhooks.Delivered)
		wantSame(t, "Attempts", t.delivery("acct", tasks[1].Event.ID).Attempts, []webhooks.Attempt{attemptOf(tasks[1])})
		wantSame(t, "State", t.delivery("acct", tasks[2].Event.ID).State, webhooks.Dead)
		released := t.claimAll(1)[0]
		wantSame(t, "Task.Event.ID", released.Event.ID, tasks[3].Event.ID)
		wantSame(t, "Task.Attempt", released.Attempt, 1)
	})

	run("one of an inactive webhook runs out, too", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		first := t.await(1, short)[0]
		t.setActive("acct", "webhook", false)
		time.Sleep(shortLease + shortLease/2)
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		second := t.await(1, long)[0]
		t.wantStale(settlement(first, webhooks.Deliver))
		t.settle(settlement(second, webhooks.Deliver))
	})
}
