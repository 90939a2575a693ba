package storetest

import (
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// dead creates a webhook with n Dead deliveries. Their events are numbered from 0.
func (t *tester) dead(account, webhookID string, n int) {
	t.Helper()
	t.createWebhooks(newWebhook(account, webhookID))
	for i := range n {
		t.settleEvent(newEvent(account, numbered("event", i)), 1, driver.GiveUp)
	}
}

// recoveryJobs tests AdvanceRecovery with several recoveries, with changing webhooks, and with
// concurrent calls.
func recoveryJobs(run runner) {
	run("recoveries advance in turn", func(t *tester) {
		const events = 100
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			t.createWebhooks(newWebhook("acct", id))
		}
		for i := range events {
			t.settleEvent(newEvent("acct", numbered("event", i)), len(ids), driver.GiveUp)
		}
		for _, id := range ids {
			t.createRecoveries(newRecovery("acct", id, id, driver.Dead))
		}
		for advanced := true; advanced; {
			var err error
			advanced, err = t.store.AdvanceRecovery(t.Context(), 10)
			t.must(err)
			least, most := events, 0
			for _, id := range ids {
				least, most = min(least, t.recovery("acct", id).Recovered), max(most, t.recovery("acct", id).Recovered)
			}
			if most > least+30 {
				t.Errorf("one recovery has recovered %d deliveries, another only %d", most, least)
			}
		}
		for _, id := range ids {
			t.wantDone(newRecovery("acct", id, id, driver.Dead), events)
		}
		t.claimAll(len(ids) * events)
	})

	run("keeps the latest recoveries of a webhook", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "another"))
		t.createRecoveries(newRecovery("acct", "another", "another", driver.Dead))
		id := func(i int) string { return numbered("recovery", i) }
		for i := range driver.MaxRecoveries + 3 {
			r := newRecovery("acct", "webhook", id(i), driver.Dead)
			r.CreatedAt = millis(-i) // the store must use the order of storage, not CreatedAt
			t.createRecoveries(r)
			t.advance(10)
		}
		for i := range driver.MaxRecoveries + 3 {
			if i >= 3 {
				t.recovery("acct", id(i))
				continue
			}
			_, err := t.store.RecoveryByID(t.Context(), "acct", id(i))
			t.wantError("RecoveryByID of "+id(i), err, apierr.ErrNotFound)
		}
		t.recovery("acct", "another")
		t.createRecoveries(newRecovery("acct", "webhook", id(0), driver.Dead)) // this ID has been dropped
	})

	run("a webhook has one unfinished recovery at a time", func(t *tester) {
		t.dead("acct", "webhook", 9)
		t.dead("other", "another", 9)
		first := newRecovery("acct", "webhook", "1", driver.Dead)
		second := newRecovery("acct", "webhook", "2", driver.Dead)
		t.createRecoveries(first, newRecovery("other", "another", "3", driver.Dead))
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), second, audit.Entry{}), driver.ErrRecovering)
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), first, audit.Entry{}), apierr.ErrExists)
		_, err := t.store.RecoveryByID(t.Context(), "acct", "2")
		t.wantError("RecoveryByID", err, apierr.ErrNotFound)
		t.advance(9)
		t.wantDone(first, 9)
		t.createRecoveries(second)
		t.advance(9)
		t.wantDone(second, 0)
		t.claimAll(18)
	})

	run("a later recovery is finished, too", func(t *tester) {
		t.dead("acct", "webhook", 3)
		for i := range 3 {
			job := newRecovery("acct", "webhook", numbered("recovery", i), driver.Dead)
			t.createRecoveries(job)
			t.advance(2)
			t.wantDone(job, 3)
			for _, task := range t.claimAll(3) {
				t.settle(settlement(task, driver.GiveUp))
			}
		}
	})

	run("a recovery ends when its webhook is deleted", func(t *tester) {
		for i, advanced := range []int{0, 2} {
			account := numbered("acct", i)
			t.dead(account, account, 9)
			job := newRecovery(account, account, account, driver.Dead)
			t.createRecoveries(job)
			for range advanced {
				_, err := t.store.AdvanceRecovery(t.Context(), 2)
				t.must(err)
			}
			recovered := t.recovery(account, account).Recovered
			t.must(t.store.DeleteWebhook(t.Context(), account, account, nil, audit.Entry{}))
			t.advance(9)
			t.wantDone(job, recovered)
			t.claimAll(0)
		}
	})

	run("recovered deliveries of an inactive webhook wait", func(t *tester) {
		t.dead("acct", "webhook", 3)
		t.setActive("acct", "webhook", false)
		job := newRecovery("acct", "webhook", "recovery", driver.Dead)
		t.createRecoveries(job)
		t.advance(9)
		t.wantDone(job, 3)
		for i := range 3 {
			wantSame(t, "State", t.delivery("acct", numbered("event", i)).State, driver.Pending)
		}
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.claimAll(3)
	})

	run("recovers deliveries skipped while the webhook was inactive", func(t *tester) {
		w := newWebhook("acct", "webhook")
		w.Active = false
		t.createWebhooks(w)
		t.enqueueMany("acct", 3, 0)
		t.setActive("acct", "webhook", true)
		job := newRecovery("acct", "webhook", "recovery", driver.Skipped)
		t.createRecoveries(job)
		t.advance(2)
		t.wantDone(job, 3)
		for _, task := range t.claimAll(3) {
			wantSame(t, "Task.Attempt and Before", []int{task.Attempt, task.Before}, []int{1, 0})
			t.settle(settlement(task, driver.Deliver))
		}
	})

	run("concurrent calls recover each delivery once", func(t *tester) {
		const n = 60
		t.dead("acct", "webhook", n)
		job := newRecovery("acct", "webhook", "recovery", driver.Dead)
		t.createRecoveries(job)
		inParallel(5, func(i int) {
			if i == 0 { // makes deliveries Dead, which a faulty recovery would find again
				for range 20 {
					tasks, err := t.worker().Claim(t.Context(), 9)
					t.wantError("Claim", err, nil)
					for _, task := range tasks {
						_, err := t.worker().Settle(t.Context(), []Settlement{settlement(task, driver.GiveUp)})
						t.wantError("Settle", err, nil)
					}
				}
				return
			}
			for advanced := true; advanced; {
				var err error
				if advanced, err = t.store.AdvanceRecovery(t.Context(), i); err != nil {
					t.Errorf("AdvanceRecovery: %v", err)
					return
				}
			}
		})
		t.wantDone(job, n)
		for _, task := range t.claim(n + 1) {
			t.settle(settlement(task, driver.GiveUp))
		}
		for i := range n {
			wantSame(t, "number of attempts", len(t.delivery("acct", numbered("event", i)).Attempts), 2)
		}
	})

	run("concurrent publications do not disturb a recovery", func(t *tester) {
		t.dead("acct", "webhook", 20)
		job := newRecovery("acct", "webhook", "recovery", driver.Dead)
		job.To = t.border()
		t.createRecoveries(job)
		for i := range 40 {
			t.enqueue(newEvent("acct", numbered("later", i)), 1)
			_, err := t.store.AdvanceRecovery(t.Context(), 3)
			t.must(err)
		}
		t.advance(3)
		t.wantDone(job, 20)
		t.claimAll(60)
	})
}
