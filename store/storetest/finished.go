package storetest

import (
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// finished tests what ClaimDeliveries says of Claim.Finished. A store may count such
// leases all the same, so it is tested that none is counted wrongly.
func finished(run runner) {
	tokens := func(tasks []webhooks.Task) (list []uint64) {
		for _, task := range tasks {
			list = append(list, task.Token)
		}
		return list
	}
	// wantRoom claims with a cap of 4 and checks that this is what is leased
	// then, of which that many are.
	wantRoom := func(t *tester, claim webhooks.Claim, leased int) []webhooks.Task {
		t.Helper()
		claim.Finished = nil
		tasks := t.claim(claim)
		wantSame(t, "number of tasks", len(tasks), 4-leased)
		wantSame(t, "number of tasks again", len(t.claim(claim)), 0)
		return tasks
	}

	for name, claim := range map[string]webhooks.Claim{
		"Cap":        {Limit: 99, Cap: each(4)},
		"PerAccount": {Limit: 99, PerAccount: 4},
		"Webhooks":   only(webhooks.Claim{Limit: 99}, map[string]int{"webhook": 4}),
	} {
		claim.Lease = longLease

		run("they stay current, and free at most their own room: "+name, func(t *tester) {
			t.createWebhooks(newWebhook("acct", "webhook"))
			t.enqueueMany("acct", 20, 1)
			first := t.claim(claim)
			wantSame(t, "number of tasks", len(first), 4)
			claim := claim
			claim.Finished = tokens(first[:2])
			next := t.claim(claim)
			if len(next) > 2 {
				t.Fatalf("claimed %d with two finished, want at most 2", len(next))
			}
			wantSame(t, "number of tasks again, with the same finished", len(t.claim(claim)), 0)
			seen := map[string]bool{}
			for _, task := range append(first, next...) {
				if seen[task.Event.ID] {
					t.Errorf("%s is leased twice", task.Event.ID)
				}
				seen[task.Event.ID] = true
				wantSame(t, "State", t.delivery("acct", task.Event.ID).State, webhooks.Pending)
			}
			t.settle(settlement(first[0], webhooks.Deliver), settlement(first[1], webhooks.GiveUp))
			t.wantStale(settlement(first[0], webhooks.Deliver))
			wantRoom(t, claim, 2+len(next))
		})

		run("whatever they end with, they are counted off once: "+name, func(t *tester) {
			t.createWebhooks(newWebhook("acct", "webhook"))
			t.enqueueMany("acct", 30, 1)
			tasks := t.claim(claim)
			for outcome := range webhooks.Outcome(4) {
				claim := claim
				claim.Limit, claim.Finished = 1, tokens(tasks[:1])
				next := t.claim(claim)
				t.settle(settlement(tasks[0], outcome))
				claim.Limit = 99
				tasks = append(append(tasks[1:], next...), wantRoom(t, claim, 3+len(next))...)
			}
		})
	}

	run("tokens that are not those of leases are ignored", func(t *tester) {
		t.createWebhooks(newWebhook("gone", "gone"))
		t.enqueue(newEvent("gone", "event"), 1)
		gone := t.claimAll(1)[0]
		t.must(t.store.DeleteWebhook(t.Context(), "gone", "gone", nil, notices.Notice{}))
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 20, 1)
		claim := webhooks.Claim{Limit: 99, Cap: each(4), Lease: longLease}
		tasks := t.claim(claim)
		t.settle(settlement(tasks[0], webhooks.Deliver))
		claim.Finished = []uint64{0, 1, tasks[0].Token, tasks[0].Token, tasks[1].Token + 1<<40, gone.Token}
		wantSame(t, "number of tasks", len(t.claim(claim)), 1)
		wantSame(t, "number of tasks again", len(t.claim(claim)), 0)
	})

	run("one that runs out is not claimed by those who hold its token, and is leased anew", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		tasks := t.await(2, webhooks.Claim{Limit: 9, Lease: shortLease})
		for range 3 {
			time.Sleep(shortLease + shortLease/2)
			wantSame(t, "number of tasks", len(t.claim(webhooks.Claim{Limit: 9, Lease: shortLease, Finished: tokens(tasks)})), 0)
		}
		time.Sleep(shortLease + shortLease/2)
		wantSame(t, "number of tasks", len(t.claim(webhooks.Claim{Limit: 9, Lease: longLease, Finished: tokens(tasks)})), 0)
		t.claimAll(0) // they have not run out any more
		backlog, err := t.store.Backlog(t.Context(), "")
		t.must(err)
		wantSame(t, "ExpiredLeases", backlog.ExpiredLeases, 0)
		later := settlement(tasks[1], webhooks.Retry)
		t.settle(settlement(tasks[0], webhooks.Deliver), later)
		wantSame(t, "State", t.delivery("acct", tasks[0].Event.ID).State, webhooks.Delivered)
		wantSame(t, "Attempts", t.delivery("acct", tasks[1].Event.ID).Attempts, []webhooks.Attempt{attemptOf(tasks[1])})
		wantSame(t, "Task.Attempt", t.claimAll(1)[0].Attempt, 2)
	})

	run("a claim that holds the tokens of some ends others that have run out", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		tasks := t.await(2, webhooks.Claim{Limit: 9, Lease: shortLease})
		again := t.await(1, webhooks.Claim{Limit: 9, Lease: longLease, Finished: tokens(tasks[:1])})
		wantSame(t, "Task.Event.ID", again[0].Event.ID, tasks[1].Event.ID)
		wantSame(t, "Task.Attempt", again[0].Attempt, 2)
		t.wantStale(settlement(tasks[1], webhooks.Deliver))
		t.settle(settlement(tasks[0], webhooks.Deliver), settlement(again[0], webhooks.Deliver))
	})

	run("one that runs out untold is claimed again, and counts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 1, 1)
		first := t.await(1, webhooks.Claim{Limit: 9, Cap: each(1), Lease: shortLease})[0]
		second := t.await(1, webhooks.Claim{Limit: 9, Cap: each(1), Lease: longLease})[0]
		wantSame(t, "Task.Attempt", second.Attempt, 2)
		claim := webhooks.Claim{Limit: 9, Cap: each(1), Lease: longLease, Finished: []uint64{first.Token}}
		t.wantStale(settlement(first, webhooks.Deliver))
		t.enqueue(newEvent("acct", "another"), 1)
		wantSame(t, "number of tasks", len(t.claim(claim)), 0)
		t.settle(settlement(second, webhooks.Deliver))
		wantSame(t, "number of tasks", len(t.claim(claim)), 1)
	})

	run("they are still owed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		t.claim(webhooks.Claim{Limit: 9, Lease: longLease, Finished: tokens(tasks)})
		for _, id := range []string{"", "webhook"} {
			backlog, err := t.store.Backlog(t.Context(), id)
			t.must(err)
			wantSame(t, "Backlog", backlog, webhooks.Backlog{Pending: 3})
		}
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", tasks[0].Event.ID, notices.Notice{}))
		t.claimAll(0)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, notices.Notice{}))
		for _, task := range tasks {
			t.wantStale(settlement(task, webhooks.Deliver))
		}
	})
}
