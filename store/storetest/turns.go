package storetest

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// turns tests what ClaimDeliveries says of the order.
func turns(run runner) {
	run("webhooks take turns, however many each has due", func(t *tester) {
		t.createWebhooks(newWebhook("busy", "busy"), newWebhook("quiet", "quiet"))
		t.enqueueMany("busy", 1000, 1)
		t.enqueue(newEvent("quiet", "event"), 1)
		for _, task := range t.claim(webhooks.Claim{Limit: 10, Cap: each(8), Lease: longLease}) {
			if task.Webhook.ID == "quiet" {
				return
			}
		}
		t.Error("one delivery of a webhook is not among the first 10, behind the 1,000 of another, at most 8 of them leased")
	})

	run("over several claims too", func(t *tester) {
		accounts := []string{"a", "b", "c", "d", "e"}
		for _, account := range accounts {
			w := newWebhook(account, account)
			w.ProvenAt = some // all are, so that they are of one group
			t.createWebhooks(w)
		}
		for i, account := range accounts {
			t.enqueueMany(account, 20+i*20, 1)
		}
		turns := map[string]int{}
		for n := range 50 {
			tasks := t.claim(webhooks.Claim{Limit: 1 + n%3, Cap: each(1), Lease: longLease})
			for _, task := range tasks {
				turns[task.Webhook.ID]++
				t.settle(settlement(task, webhooks.Deliver))
			}
			for _, a := range accounts {
				for _, b := range accounts {
					if turns[a] > turns[b]+1 {
						t.Fatalf("%s was claimed %d times, %s %d times, though both always had some due", a, turns[a], b, turns[b])
					}
				}
			}
		}
	})

	run("one at its cap does not keep the others waiting", func(t *tester) {
		t.createWebhooks(newWebhook("busy", "busy"), newWebhook("quiet", "quiet"))
		t.enqueueMany("busy", 100, 1)
		wantSame(t, "leased of busy", len(t.claim(webhooks.Claim{Limit: 100, Cap: each(2), Lease: longLease})), 2)
		t.enqueueMany("quiet", 5, 1)
		for range 5 {
			tasks := t.claim(webhooks.Claim{Limit: 1, Cap: each(2), Lease: longLease})
			if len(tasks) != 1 || tasks[0].Webhook.ID != "quiet" {
				t.Fatalf("claimed %d deliveries, want one of quiet", len(tasks))
			}
			t.settle(settlement(tasks[0], webhooks.Deliver))
		}
	})

	run("of one webhook the longest due comes first", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 4 {
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			time.Sleep(2 * time.Millisecond) // due in different milliseconds
		}
		one := webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease}
		var settlements []webhooks.Settlement
		for i, after := range []time.Duration{200, 50, 150, 100} { // far enough from each other for a busy machine
			task := t.claim(one)[0]
			wantSame(t, "Task.Event.ID", task.Event.ID, numbered("event", i))
			end := settlement(task, webhooks.Retry)
			end.RetryAfter = after * time.Millisecond
			settlements = append(settlements, end)
		}
		t.settle(settlements...)
		t.setActive("acct", "webhook", false)
		time.Sleep(210 * time.Millisecond) // all of them due
		t.setActive("acct", "webhook", true)
		for _, i := range []int{1, 3, 2, 0} {
			wantSame(t, "Task.Event.ID", t.await(1, one)[0].Event.ID, numbered("event", i))
		}
	})
}

// waits tests what ClaimDeliveries says of wait.
func waits(run runner) {
	run = claiming(run)
	all := webhooks.Claim{Limit: 100, Lease: longLease}
	wantWait := func(t *tester, claim webhooks.Claim, tasks int, least, most time.Duration) {
		t.Helper()
		got, wait := t.claimAndWait(claim)
		wantSame(t, "number of tasks", len(got), tasks)
		if wait < least || wait > most {
			t.Errorf("wait = %v, want %v to %v", wait, least, most)
		}
	}
	// retryIn makes an event's delivery due again in that long.
	retryIn := func(t *tester, eventID string, after time.Duration) {
		t.Helper()
		t.enqueue(newEvent("acct", eventID), 1)
		end := settlement(t.claimAll(1)[0], webhooks.Retry)
		end.RetryAfter = after
		t.settle(end)
	}
	const instant = time.Nanosecond // the least that is not at once

	run("0 if another claim would find more at once", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		wantWait(t, webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease}, 1, 0, 0)
		wantWait(t, webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease}, 1, 0, 0)
	})

	run("never more than an hour", func(t *tester) {
		wantWait(t, all, 0, instant, time.Hour)
		t.createWebhooks(newWebhook("acct", "webhook"))
		retryIn(t, "event", 3*time.Hour)
		wantWait(t, all, 0, instant, time.Hour)
	})

	run("until the next delivery is due", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		retryIn(t, "later", 20*time.Minute)
		wantWait(t, all, 0, instant, 20*time.Minute)
		retryIn(t, "sooner", 10*time.Minute)
		wantWait(t, all, 0, instant, 10*time.Minute)
		t.enqueue(newEvent("acct", "now"), 1)
		wantWait(t, all, 1, instant, 10*time.Minute)
	})

	run("no longer than until a lease runs out", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		claim := webhooks.Claim{Limit: 9, Cap: each(1), Lease: 10 * time.Minute}
		wantWait(t, claim, 1, instant, 10*time.Minute)
		wantWait(t, claim, 0, instant, 10*time.Minute)
	})

	run("not 0 for what an inactive webhook is owed", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		t.setActive("acct", "webhook", false)
		wantWait(t, all, 0, 0, time.Hour) // it may have been reported before it was off
		wantWait(t, all, 0, instant, time.Hour)
	})

	run("not 0 for what the caps leave", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		wantWait(t, webhooks.Claim{Limit: 9, Lease: longLease, Cap: each(0)}, 0, instant, time.Hour)
		wantWait(t, webhooks.Claim{Limit: 9, Lease: longLease, Webhooks: []string{"unknown"}}, 0, instant, time.Hour)
		wantWait(t, only(webhooks.Claim{Limit: 9, Lease: 10 * time.Minute}, map[string]int{"webhook": 1}), 1, instant, 10*time.Minute)
		wantWait(t, webhooks.Claim{Limit: 9, PerAccount: 1, Lease: longLease}, 0, instant, 10*time.Minute)
	})

	run("until the next delivery of a webhook that is named is due", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		capped := webhooks.Claim{Limit: 9, Lease: longLease, Webhooks: []string{"webhook"}}
		retryIn(t, "later", 20*time.Minute)
		wantWait(t, capped, 0, instant, 20*time.Minute)
		for i := range 3 {
			retryIn(t, numbered("sooner", i), time.Duration(10-i)*time.Minute)
			t.enqueue(newEvent("acct", numbered("now", i)), 1)
			wantWait(t, capped, 1, instant, time.Duration(10-i)*time.Minute)
			wantWait(t, capped, 0, instant, time.Duration(10-i)*time.Minute)
		}
		t.enqueueMany("acct", 2, 1)
		capped.Limit = 1
		wantWait(t, capped, 1, 0, 0)
	})

	run("whoever waits for so long finds the next", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		retryIn(t, "event", 50*time.Millisecond)
		for claims := 1; ; claims++ {
			tasks, wait := t.claimAndWait(all)
			if len(tasks) > 0 {
				return
			}
			if claims == 10 || wait > patience {
				t.Fatalf("nothing found in %d claims, the last of which says to wait %v", claims, wait)
			}
			time.Sleep(wait)
		}
	})
}
