package storetest

import (
	"errors"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// backlogs tests Backlog.
func backlogs(run runner) {
	backlog := func(t *tester, webhookID string) webhooks.Backlog {
		t.Helper()
		b, err := t.store.Backlog(t.Context(), webhookID)
		t.must(err)
		return b
	}
	wantPending := func(t *tester, webhookID string, want int) {
		t.Helper()
		wantSame(t, "Pending of "+webhookID, backlog(t, webhookID).Pending, want)
	}
	// wantOldest checks that OldestDue is when the delivery of that event is
	// due, give or take what a store drops of times, and how long a busy machine takes
	// from one clock of the store to the other.
	wantOldest := func(t *tester, webhookID, account, eventID string) {
		t.Helper()
		got, want := backlog(t, webhookID).OldestDue, t.delivery(account, eventID).NextAttemptAt
		if off := got.Sub(want).Abs(); off > 50*time.Millisecond {
			t.Errorf("OldestDue of %q = %v, %v away from when %s is due", webhookID, got, off, eventID)
		}
		wantSame(t, "what is finer than a millisecond, or not UTC", got.UTC().Truncate(time.Millisecond), got)
	}
	// apart lets enough time pass to tell due times apart.
	apart := func() { time.Sleep(100 * time.Millisecond) } // twice that

	run("nothing is owed to nobody", func(t *tester) {
		for _, id := range []string{"", "unknown"} {
			wantSame(t, "Backlog", backlog(t, id), webhooks.Backlog{})
		}
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, id := range []string{"", "webhook", "unknown"} {
			wantSame(t, "Backlog", backlog(t, id), webhooks.Backlog{})
		}
		t.enqueue(newEvent("acct", "event"), 1)
		wantSame(t, "Backlog of another", backlog(t, "unknown"), webhooks.Backlog{})
	})

	run("Pending: of all, and of one webhook", func(t *tester) {
		t.createWebhooks(newWebhook("a", "a1"), newWebhook("a", "a2"), newWebhook("b", "b"))
		t.enqueueMany("a", 5, 2)
		t.enqueueMany("b", 3, 1)
		wantPending(t, "a1", 5)
		wantPending(t, "a2", 5)
		wantPending(t, "b", 3)
		wantPending(t, "", 13)
	})

	run("Pending: leased ones and those of inactive webhooks included", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 5, 1)
		tasks := t.claimAll(5)
		t.createWebhooks(newWebhook("other", "other"))
		t.enqueue(newEvent("other", "event"), 1)
		wantBoth := func(want int) {
			t.Helper()
			wantPending(t, "webhook", want)
			wantPending(t, "", want+1)
		}
		wantBoth(5)
		t.setActive("acct", "webhook", false)
		t.enqueue(newEvent("acct", "skipped"), 0)
		wantBoth(5)
		for i, want := range map[webhooks.Outcome]int{webhooks.Release: 5, webhooks.Retry: 5} {
			later := settlement(tasks[i], i)
			later.RetryAfter = time.Hour
			t.settle(later)
			wantBoth(want)
		}
		t.settle(settlement(tasks[2], webhooks.Deliver))
		wantBoth(4)
		t.settle(settlement(tasks[3], webhooks.GiveUp))
		wantBoth(3)
		t.wantStale(settlement(tasks[3], webhooks.GiveUp))
		wantBoth(3)
		for _, id := range []string{tasks[1].Event.ID, tasks[4].Event.ID} { // owed already
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, notices.Notice{}))
			wantBoth(3)
		}
		for i, id := range []string{"skipped", tasks[2].Event.ID, tasks[3].Event.ID} {
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", id, notices.Notice{}))
			wantBoth(4 + i)
		}
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, notices.Notice{}))
		wantBoth(0)
	})

	run("Pending: what was recovered, and what is claimed again after its lease", func(t *tester) {
		t.dead("acct", "webhook", 3)
		wantPending(t, "webhook", 0)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", webhooks.Dead))
		t.advance(9)
		wantPending(t, "webhook", 3)
		t.enqueue(newEvent("acct", "live"), 1)
		for _, lease := range []time.Duration{shortLease, longLease} {
			t.await(4, webhooks.Claim{Limit: 4, Lease: lease})
			wantPending(t, "webhook", 4)
			wantPending(t, "", 4)
		}
	})

	run("Pending: what others see already of what is under way", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		seen := func(event string, state webhooks.DeliveryState) {
			t.Helper()
			for end := time.Now().Add(patience); ; {
				deliveries, err := t.store.EventDeliveries(t.Context(), "acct", event)
				if err != nil && !errors.Is(err, webhooks.ErrNotFound) {
					t.Fatal(err)
				}
				if len(deliveries) == 1 && deliveries[0].State == state {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%s is never %s", event, state)
				}
			}
		}
		for i := range 50 {
			event := numbered("event", i)
			ended := make(chan error, 1)
			go func() {
				_, err := t.store.Enqueue(t.Context(), newEvent("acct", event))
				ended <- err
			}()
			seen(event, webhooks.Pending)
			wantPending(t, "webhook", 1)
			t.must(<-ended)

			end := settlement(t.claimAll(1)[0], webhooks.GiveUp)
			go func() {
				_, err := t.store.SettleDeliveries(t.Context(), []webhooks.Settlement{end})
				ended <- err
			}()
			seen(event, webhooks.Dead)
			wantPending(t, "webhook", 0)
			t.must(<-ended)
		}
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", webhooks.Dead))
		ended := make(chan error, 1)
		go func() {
			_, err := t.store.AdvanceRecovery(t.Context(), 99)
			ended <- err
		}()
		for end := time.Now().Add(patience); !t.recovery("acct", "recovery").Done; {
			if time.Now().After(end) {
				t.Fatal("the recovery is never done")
			}
		}
		wantPending(t, "webhook", 50)
		t.must(<-ended)
	})

	run("OldestDue: since when the longest due delivery waits", func(t *tester) {
		t.createWebhooks(newWebhook("a", "a"), newWebhook("b", "b"))
		t.enqueue(newEvent("a", "1"), 1)
		apart()
		t.enqueue(newEvent("b", "2"), 1)
		apart()
		t.enqueue(newEvent("a", "3"), 1)
		wantOldest(t, "", "a", "1")
		wantOldest(t, "a", "a", "1")
		wantOldest(t, "b", "b", "2")
		t.setActive("a", "a", false)
		wantOldest(t, "", "b", "2")
		wantSame(t, "OldestDue of an inactive webhook", backlog(t, "a").OldestDue, time.Time{})
		t.setActive("a", "a", true)
		t.must(t.store.DeleteWebhook(t.Context(), "b", "b", nil, notices.Notice{}))
		t.settle(settlement(t.claim(webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease})[0], webhooks.Deliver))
		wantOldest(t, "", "a", "3")
	})

	run("OldestDue: not what is leased, nor what is due later; zero if none is due", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "1"), 1)
		task := t.claimAll(1)[0]
		apart()
		t.enqueue(newEvent("acct", "2"), 1)
		for _, id := range []string{"", "webhook"} {
			wantOldest(t, id, "acct", "2")
		}
		second := t.claimAll(1)[0]
		for _, id := range []string{"", "webhook"} {
			wantSame(t, "Backlog", backlog(t, id), webhooks.Backlog{Pending: 2})
		}
		later := settlement(second, webhooks.Retry)
		later.RetryAfter = time.Hour
		t.settle(later)
		for _, id := range []string{"", "webhook"} {
			wantSame(t, "Backlog", backlog(t, id), webhooks.Backlog{Pending: 2})
		}
		t.settle(settlement(task, webhooks.Retry))
		time.Sleep(2 * time.Millisecond)
		for _, id := range []string{"", "webhook"} {
			wantOldest(t, id, "acct", "1")
		}
	})

	run("OldestDue: of what was recovered, too", func(t *tester) {
		t.dead("acct", "webhook", 1)
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", webhooks.Dead))
		t.advance(9)
		apart()
		t.enqueue(newEvent("acct", "live"), 1)
		wantOldest(t, "webhook", "acct", numbered("event", 0))
		wantOldest(t, "", "acct", numbered("event", 0))
	})
}
