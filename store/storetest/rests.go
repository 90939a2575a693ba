package storetest

import (
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// rests tests what a store does about Settlement.Rest.
func rests(run runner) {
	all := webhooks.Claim{Limit: 99, Lease: longLease}
	named := webhooks.Claim{Limit: 99, Lease: longLease, Webhooks: []string{"webhook"}}

	// fails settles one delivery of the webhook as failed, and has it rest.
	fails := func(t *tester, rest time.Duration) {
		t.Helper()
		end := settlement(t.claim(webhooks.Claim{Limit: 1, Lease: longLease, Webhooks: []string{"webhook"}})[0], webhooks.GiveUp)
		end.Rest = rest
		t.settle(end)
	}
	wantNone := func(t *tester) {
		t.Helper()
		wantSame(t, "number of tasks of all", t.claimCounts(all), map[string]int{})
		wantSame(t, "number of tasks of the one named", t.claimCounts(named), map[string]int{})
	}

	run("all claims pass the webhook over until then, and no others", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
		t.enqueueMany("acct", 3, 1)
		begun := time.Now()
		const rest = 300 * time.Millisecond
		fails(t, rest)
		wantNone(t)
		t.enqueueMany("other", 2, 1)
		wantSame(t, "number of tasks", t.claimCounts(all), map[string]int{"other": 2})
		if _, wait := t.claimAndWait(all); wait > rest {
			t.Errorf("wait = %v, want no longer than the rest of %v", wait, rest)
		}
		t.await(2, all)
		if took := time.Since(begun); took < rest {
			t.Errorf("claimed after %v, want %v at least", took, rest)
		}
	})

	run("of those named, too, and wait is no longer", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		begun := time.Now()
		const rest = 300 * time.Millisecond
		fails(t, rest)
		if tasks, wait := t.claimAndWait(named); len(tasks) > 0 || wait > rest {
			t.Errorf("claimed %d, wait = %v, want none for no longer than %v", len(tasks), wait, rest)
		}
		t.await(1, named)
		if took := time.Since(begun); took < rest {
			t.Errorf("claimed after %v, want %v at least", took, rest)
		}
	})

	run("also if nothing else was pending when it began", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 1, 1)
		fails(t, time.Hour)
		t.enqueue(newEvent("acct", "later"), 1)
		wantNone(t)
	})

	run("of several the last to end counts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claim(webhooks.Claim{Limit: 2, Lease: longLease})
		for i, rest := range []time.Duration{time.Hour, time.Millisecond} {
			end := settlement(tasks[i], webhooks.Retry)
			end.Rest = rest
			t.settle(end)
		}
		time.Sleep(20 * time.Millisecond)
		wantNone(t)
	})

	run("a probe waits until something is due, and no longer", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 1, 1)
		const after = 300 * time.Millisecond
		end := settlement(t.claim(all)[0], webhooks.Retry)
		end.RetryAfter, end.Rest = after, time.Hour
		t.settle(end)
		t.must(t.store.Probe(t.Context(), "acct", "webhook"))
		probe := webhooks.Claim{Limit: 99, Probes: 1, Lease: longLease}
		if tasks, wait := t.claimAndWait(probe); len(tasks) > 0 || wait > after {
			t.Errorf("claimed %d, wait = %v, want none for no longer than %v", len(tasks), wait, after)
		}
		t.await(1, probe)
	})

	run("Deliver ends it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 4, 1)
		before := t.claim(webhooks.Claim{Limit: 1, Lease: longLease})[0]
		fails(t, time.Hour)
		wantNone(t)
		t.settle(settlement(before, webhooks.Deliver))
		t.await(2, all)
	})

	run("UpdateWebhook ends it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		fails(t, time.Hour)
		wantNone(t)
		t.setActive("acct", "webhook", true)
		t.await(2, all)
	})

	run("a settlement of a task with another URL neither begins nor ends it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 5, 1)
		tasks := t.claim(webhooks.Claim{Limit: 2, Lease: longLease})
		old := func(task webhooks.Task, outcome webhooks.Outcome) webhooks.Settlement {
			before := *task.Webhook
			before.URL = "https://example.org/before"
			task.Webhook = &before
			return settlement(task, outcome)
		}
		end := old(tasks[0], webhooks.GiveUp)
		end.Rest = time.Hour
		t.settle(end)
		fails(t, time.Hour) // which could be claimed
		t.settle(old(tasks[1], webhooks.Deliver))
		wantNone(t)
	})

	run("a webhook that is created with the id of one that was deleted does not rest", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		fails(t, time.Hour)
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, notices.Notice{}))
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "later"), 1)
		t.await(1, all)
	})
}
