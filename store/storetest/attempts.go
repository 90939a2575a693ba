package storetest

import (
	"strings"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// attempts tests which attempts of a delivery are stored.
func attempts(run runner) {
	run("keeps the last MaxAttempts attempts, in order", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settleEvent(newEvent("acct", "another"), 1, driver.Deliver)
		t.enqueue(newEvent("acct", "event"), 1)
		const more = 5
		for number := range driver.MaxAttempts + more {
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Attempt", task.Attempt, number+1)
			wantSame(t, "Task.Event", task.Event, newEvent("acct", "event"))
			outcome := driver.Retry
			if number == driver.MaxAttempts+more-1 {
				outcome = driver.GiveUp
			}
			t.settle(settlement(task, outcome))
		}
		d := t.delivery("acct", "event")
		wantSame(t, "number of attempts", len(d.Attempts), driver.MaxAttempts)
		for i, attempt := range d.Attempts {
			wantSame(t, "attempt", attempt, attemptOf(Task{Attempt: more + 1 + i}))
		}
		wantSame(t, "State", d.State, driver.Dead)
		wantSame(t, "attempts of the other event", len(t.delivery("acct", "another").Attempts), 1)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "event", audit.Entry{}))
		wantSame(t, "Attempt", t.claimAll(1)[0].Attempt, driver.MaxAttempts+more+1)
	})

	run("returns every field of an attempt unchanged", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i, attempt := range []driver.Attempt{
			{Number: 1, StartedAt: some, Duration: time.Microsecond, Status: 204},
			{Number: 1, StartedAt: some.Add(time.Millisecond), Duration: 15*time.Second + time.Microsecond, Error: "no such host: é"},
			{Number: 1, StartedAt: some, Status: 999, Error: long("error", 4096)},
			{Number: 1, StartedAt: some, Class: driver.ClassConnection, Error: "é", Response: long("response", 1024)},
			{Number: 1, StartedAt: some, Class: "a class of later", Response: strings.Repeat("\x01\x1f\u2028\ufffd", 128)},
			{Number: 1 << 30, StartedAt: some, Duration: 1000 * time.Hour, Status: 200, Response: strings.Join(oddStrings, "\r\n")},
		} {
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			end := settlement(t.claimAll(1)[0], driver.GiveUp)
			end.Attempt = attempt
			t.settle(end)
			wantSame(t, "Attempts", t.delivery("acct", numbered("event", i)).Attempts, []driver.Attempt{attempt})
		}
	})

	run("stores many attempts of several accounts in one step", func(t *tester) {
		for _, account := range []string{"a", "b"} {
			t.createWebhooks(newWebhook(account, account+"1"), newWebhook(account, account+"2"))
			t.enqueueMany(account, 50, 2)
		}
		tasks := t.claimAll(200)
		var settlements []Settlement
		for _, task := range tasks {
			settlements = append(settlements, settlement(task, driver.Deliver))
		}
		t.settle(settlements...)
		for _, task := range tasks {
			for _, d := range t.deliveries(task.Event.Account, task.Event.ID) {
				wantSame(t, "State", d.State, driver.Delivered)
			}
		}
		t.claimAll(0)
	})
}
