package storetest

import (
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// newRecovery returns a recovery of all deliveries in the given states.
func newRecovery(account, webhookID, id string, states ...driver.DeliveryState) driver.Recovery {
	return driver.Recovery{
		ID: id, Account: account, WebhookID: webhookID, States: states,
		From: some.AddDate(-50, 0, 0), To: some.AddDate(50, 0, 0), CreatedAt: some,
	}
}

func (t *tester) createRecoveries(list ...driver.Recovery) {
	t.Helper()
	for _, recovery := range list {
		t.must(t.store.CreateRecovery(t.Context(), recovery, audit.Entry{}))
	}
}

func (t *tester) recovery(account, id string) driver.Recovery {
	t.Helper()
	recovery, err := t.store.RecoveryByID(t.Context(), account, id)
	t.must(err)
	return recovery
}

// advance advances all recoveries until they are finished.
func (t *tester) advance(limit int) {
	t.Helper()
	for range 100_000 {
		advanced, err := t.store.AdvanceRecovery(t.Context(), limit)
		t.must(err)
		if !advanced {
			return
		}
	}
	t.Fatal("AdvanceRecovery does not end")
}

// wantDone checks that a recovery is finished and has recovered the given number of deliveries.
func (t *tester) wantDone(want driver.Recovery, recovered int) {
	t.Helper()
	want.Done, want.Recovered = true, recovered
	wantSame(t, "RecoveryByID", t.recovery(want.Account, want.ID), want)
}

func createRecovery(run runner) {
	run("returns every field unchanged", func(t *tester) {
		for i, states := range [][]driver.DeliveryState{
			{driver.Dead}, {driver.Skipped}, {driver.Delivered},
			{driver.Skipped, driver.Dead}, {driver.Dead, driver.Skipped, driver.Delivered},
		} {
			t.createWebhooks(newWebhook("acct", numbered("webhook", i)))
			recovery := newRecovery("acct", numbered("webhook", i), numbered("recovery", i), states...)
			recovery.From, recovery.To = some.Add(time.Duration(i)*time.Hour), some.AddDate(0, i, 1)
			recovery.CreatedAt = some.Add(time.Duration(i) * time.Minute)
			t.createRecoveries(recovery)
			wantSame(t, "RecoveryByID", t.recovery("acct", recovery.ID), recovery)
		}
		t.claimAll(0)
	})

	run("returns ErrNotFound if the account has no such webhook", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "deleted"), newWebhook("other", "foreign"))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, audit.Entry{}))
		for _, ref := range [][2]string{{"acct", "unknown"}, {"acct", "deleted"}, {"acct", "foreign"}, {"other", "webhook"}} {
			t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), newRecovery(ref[0], ref[1], "recovery", driver.Dead), audit.Entry{}), apierr.ErrNotFound)
			_, err := t.store.RecoveryByID(t.Context(), ref[0], "recovery")
			t.wantError("RecoveryByID", err, apierr.ErrNotFound)
		}
	})

	run("returns ErrExists if a recovery has the same ID", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"))
		recovery := newRecovery("acct", "a", "recovery", driver.Dead)
		t.createRecoveries(recovery)
		for _, again := range []driver.Recovery{
			recovery, newRecovery("acct", "b", "recovery", driver.Skipped), newRecovery("other", "c", "recovery", driver.Dead),
		} {
			t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), again, audit.Entry{}), apierr.ErrExists)
		}
		wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), recovery)
		t.advance(9)
		t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), recovery, audit.Entry{}), apierr.ErrExists)
		t.wantDone(recovery, 0)
	})

	run("RecoveryByID returns ErrNotFound for unknown recoveries and those of other accounts", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "foreign"))
		t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		for _, ref := range [][2]string{{"acct", "unknown"}, {"other", "recovery"}, {"nobody", "recovery"}, {"acct", "recover"}, {"acc", "trecovery"}, {"acct", "RECOVERY"}} {
			_, err := t.store.RecoveryByID(t.Context(), ref[0], ref[1])
			t.wantError("RecoveryByID", err, apierr.ErrNotFound)
		}
	})

	run("if several recoveries with the same ID or webhook are created concurrently, one succeeds", func(t *tester) {
		for round := range 10 {
			hook := numbered("webhook", round)
			t.createWebhooks(newWebhook("acct", hook))
			won := make([]bool, 8)
			inParallel(len(won), func(i int) {
				id, want := hook, apierr.ErrExists
				if round%2 == 0 {
					id, want = numbered(hook, i), driver.ErrRecovering
				}
				err := t.store.CreateRecovery(t.Context(), newRecovery("acct", hook, id, driver.Dead), audit.Entry{})
				if won[i] = err == nil; !won[i] {
					t.wantError("CreateRecovery", err, want)
				}
			})
			wantSame(t, "created recoveries", countTrue(won), 1)
		}
	})
}
