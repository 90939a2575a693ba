package storetest

import (
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// longestWait tests LongestWait.
func longestWait(run runner) {
	all := webhooks.Claim{Limit: 99, Lease: longLease}
	longest := func(t *tester) time.Duration {
		t.Helper()
		wait, err := t.store.LongestWait(t.Context())
		t.must(err)
		return wait
	}
	wantNone := func(t *tester, what string) {
		t.Helper()
		time.Sleep(3 * time.Millisecond) // long enough to be seen, if it counted
		if got := longest(t); got != 0 {
			t.Errorf("%s: LongestWait = %v, want 0", what, got)
		}
	}
	wantSome := func(t *tester, what string) {
		t.Helper()
		for end := time.Now().Add(patience); longest(t) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: LongestWait stays 0", what)
			}
		}
	}
	// prove makes a webhook of its account one that has taken an event.
	prove := func(t *tester, account, id string) {
		t.Helper()
		t.createWebhooks(newWebhook(account, id))
		t.settleEvent(newEvent(account, "first of "+account), 1, webhooks.Deliver)
	}

	run("a proven webhook waits from when something is due until it is leased, and again", func(t *tester) {
		prove(t, "acct", "webhook")
		wantNone(t, "nothing is pending")
		t.enqueueMany("acct", 3, 1)
		wantSome(t, "something is due")
		time.Sleep(50 * time.Millisecond)
		if got := longest(t); got < 50*time.Millisecond || got > patience {
			t.Errorf("LongestWait = %v, after 50ms", got)
		}
		claim := all
		claim.Cap = each(1)
		task := t.claim(claim)[0]
		wantNone(t, "it holds a lease")
		t.settle(settlement(task, webhooks.Deliver))
		wantSome(t, "the lease has ended")
		tasks := t.claim(all)
		wantNone(t, "everything is leased")
		later := settlement(tasks[0], webhooks.Retry)
		later.RetryAfter = time.Hour
		t.settle(later, settlement(tasks[1], webhooks.Deliver))
		wantNone(t, "the rest is due later")
	})

	run("unproven ones do not", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "1"), 1)
		wantNone(t, "nothing was delivered to it")
		t.settle(settlement(t.claimAll(1)[0], webhooks.Deliver))
		t.enqueue(newEvent("acct", "2"), 1)
		t.enqueue(newEvent("acct", "3"), 1)
		wantSome(t, "it is proven")
		claim := all
		claim.Cap = each(1)
		t.settle(settlement(t.claim(claim)[0], webhooks.GiveUp))
		wantNone(t, "the last attempt failed")
	})

	run("those that are off or on hold do not", func(t *tester) {
		prove(t, "acct", "webhook")
		t.enqueueMany("acct", 2, 1)
		t.setActive("acct", "webhook", false)
		wantNone(t, "it is off")
		t.setActive("acct", "webhook", true)
		wantSome(t, "it is on again")
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.Held = true })
		wantNone(t, "it is on hold")
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.Held = false })
		wantSome(t, "it is released")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, notices.Notice{}))
		wantNone(t, "it is deleted")
	})

	run("those without slots do not, nor those whose account has as many leases as it may", func(t *tester) {
		prove(t, "acct", "webhook")
		t.enqueueMany("acct", 2, 1)
		t.claim(webhooks.Claim{Limit: 9, Lease: longLease, Cap: each(0), CapVersion: 1})
		wantNone(t, "its cap is 0")
		claim := webhooks.Claim{Limit: 1, Lease: longLease, PerAccount: 1, Cap: each(9), CapVersion: 2}
		t.await(1, claim)
		wantNone(t, "it holds a lease")
		t.createWebhooks(newWebhook("acct", "second"))
		t.updateWebhook("acct", "second", func(w *webhooks.Webhook) { w.ProvenAt = some })
		t.enqueue(newEvent("acct", "of both"), 2)
		wantSame(t, "number of tasks", len(t.claim(claim)), 0)
		wantNone(t, "the account has a lease")
	})

	run("what was recovered does not count", func(t *tester) {
		prove(t, "acct", "webhook")
		t.settleEvent(newEvent("acct", "dead"), 1, webhooks.GiveUp)
		t.settleEvent(newEvent("acct", "delivered"), 1, webhooks.Deliver)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", webhooks.Dead))
		t.advance(9)
		wantNone(t, "it was recovered")
		t.claimAll(1)
	})
}
