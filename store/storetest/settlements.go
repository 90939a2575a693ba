package storetest

import (
	"strings"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// settleDeliveries tests SettleDeliveries with claims that are current.
func settleDeliveries(run runner) {
	one := webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease}

	// claimed makes a webhook and an event and claims its delivery.
	claimed := func(t *tester) webhooks.Task {
		t.Helper()
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		return t.claimAll(1)[0]
	}

	for outcome, state := range map[webhooks.Outcome]webhooks.DeliveryState{
		webhooks.Deliver: webhooks.Delivered,
		webhooks.GiveUp:  webhooks.Dead,
	} {
		run("logs the attempt and settles the delivery as "+string(state), func(t *tester) {
			task := claimed(t)
			end := settlement(task, outcome)
			end.RetryAfter = time.Second // means nothing here
			t.settle(end)
			d := t.delivery("acct", "event")
			wantSame(t, "EventDeliveries", d, webhooks.Delivery{
				EventID: "event", WebhookID: "webhook", Type: task.Event.Type, PublishedAt: d.PublishedAt,
				State: state, Attempts: []webhooks.Attempt{attemptOf(task)},
			})
			t.claimAll(0)
			t.enqueue(newEvent("acct", "event"), 1)
			t.claimAll(0)
		})
	}

	run("logs the attempt and makes the delivery due again", func(t *tester) {
		task := claimed(t)
		end := settlement(task, webhooks.Retry)
		end.RetryAfter = 10 * time.Minute
		t.settle(end)
		d := t.delivery("acct", "event")
		wantSame(t, "EventDeliveries", d, webhooks.Delivery{
			EventID: "event", WebhookID: "webhook", Type: task.Event.Type, PublishedAt: d.PublishedAt,
			State: webhooks.Pending, NextAttemptAt: d.NextAttemptAt, Attempts: []webhooks.Attempt{attemptOf(task)},
		})
		if off := (time.Until(d.NextAttemptAt) - end.RetryAfter).Abs(); off > time.Minute {
			t.Errorf("NextAttemptAt is %v away from what RetryAfter asks for", off)
		}
		t.claimAll(0)
	})

	run("of more than MaxAttempts the last ones are kept", func(t *tester) {
		task := claimed(t)
		t.enqueue(newEvent("acct", "another"), 1)
		t.settle(settlement(t.claimAll(1)[0], webhooks.Deliver))
		const more = 5
		for range webhooks.MaxAttempts + more - 1 {
			t.settle(settlement(task, webhooks.Retry))
			task = t.claimAll(1)[0]
		}
		t.settle(settlement(task, webhooks.GiveUp))
		d := t.delivery("acct", "event")
		wantSame(t, "number of attempts", len(d.Attempts), webhooks.MaxAttempts)
		for i, attempt := range d.Attempts {
			wantSame(t, "Number", attempt.Number, more+1+i)
		}
		wantSame(t, "State", d.State, webhooks.Dead)
		wantSame(t, "number of another's attempts", len(t.delivery("acct", "another").Attempts), 1)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", "event", notices.Notice{}))
		wantSame(t, "Attempt", t.claimAll(1)[0].Attempt, webhooks.MaxAttempts+more+1)
	})

	run("attempts are counted and logged in their order", func(t *tester) {
		task := claimed(t)
		var want []webhooks.Attempt
		for number := 1; number <= 12; number++ {
			wantSame(t, "Task.Attempt", task.Attempt, number)
			wantSame(t, "Task.Event", task.Event, newEvent("acct", "event"))
			end := settlement(task, webhooks.Retry)
			want = append(want, end.Attempt)
			t.settle(end)
			wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, want)
			task = t.await(1, one)[0]
		}
		t.settle(settlement(task, webhooks.GiveUp))
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, append(want, attemptOf(task)))
	})

	run("every field of an attempt comes back", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i, attempt := range []webhooks.Attempt{
			{Number: 1, StartedAt: some, Duration: time.Microsecond, Status: 204},
			{Number: 1, StartedAt: some.Add(time.Millisecond), Duration: 15*time.Second + time.Microsecond, Error: "no such host: é"},
			{Number: 1, StartedAt: some, Status: 999, Error: long("error", 4096)},
			{Number: 1, StartedAt: some, Class: webhooks.ClassConnection, Error: "é", Response: long("response", 1024)},
			{Number: 1, StartedAt: some, Class: "a class of later", Response: strings.Repeat("\x01\x1f\u2028\ufffd", 128)},
			{Number: 1 << 30, StartedAt: some, Duration: 1000 * time.Hour, Status: 200, Response: strings.Join(oddStrings, "\r\n")},
		} {
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			end := settlement(t.claimAll(1)[0], webhooks.GiveUp)
			end.Attempt = attempt
			t.settle(end)
			wantSame(t, "Attempts", t.delivery("acct", numbered("event", i)).Attempts, []webhooks.Attempt{attempt})
		}
	})

	run("Release gives back the lease and changes nothing else", func(t *tester) {
		task := claimed(t)
		t.settle(settlement(task, webhooks.Retry))
		second := t.await(1, one)[0]
		before := t.delivery("acct", "event")
		for range 3 {
			t.settle(settlement(second, webhooks.Release))
			after := t.delivery("acct", "event")
			after.NextAttemptAt = before.NextAttemptAt // due at once, whenever it was before
			wantSame(t, "EventDeliveries", after, before)
			again := t.claimAll(1)[0]
			wantSame(t, "Task.Attempt", again.Attempt, 2)
			second = again
		}
	})

	run("Deactivate makes the webhook inactive in the same step, for that reason", func(t *tester) {
		for i, outcome := range []webhooks.Outcome{webhooks.Release, webhooks.Retry, webhooks.Deliver, webhooks.GiveUp} {
			account := numbered("acct", i)
			w := newWebhook(account, account)
			t.createWebhooks(w)
			t.enqueueMany(account, 3, 1)
			task := t.claim(one)[0]
			end := settlement(task, outcome)
			end.Deactivate = webhooks.OffGone
			t.settle(end)
			w.Active, w.OffReason, w.OffAt = false, webhooks.OffGone, end.Attempt.StartedAt
			if end.Fails() {
				w.NoteFailure(end.Task.Event.ID, end.Attempt.StartedAt)
			}
			if outcome == webhooks.Deliver {
				w.ProvenAt = end.Attempt.StartedAt
			}
			wantSame(t, "WebhookByID", t.webhook(account, account), w)
			t.claimAll(0)
			t.enqueue(newEvent(account, "missed"), 0)
			wantSame(t, "State of another", t.delivery(account, numbered("event", 2)).State, webhooks.Pending)
			t.setActive(account, account, true)
			want := 2
			if outcome == webhooks.Release || outcome == webhooks.Retry {
				want = 3
			}
			for _, task := range t.await(want, webhooks.Claim{Limit: 9, Lease: longLease}) {
				t.settle(settlement(task, webhooks.Deliver))
			}
			t.claimAll(0)
		}
	})

	run("one that deactivates does not end the other claims", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		tasks := t.claimAll(3)
		end := settlement(tasks[0], webhooks.GiveUp)
		end.Deactivate = webhooks.OffGone
		t.settle(end, settlement(tasks[1], webhooks.Deliver))
		t.settle(settlement(tasks[2], webhooks.Deliver))
		wantSame(t, "State", t.delivery("acct", tasks[1].Event.ID).State, webhooks.Delivered)
		wantSame(t, "State", t.delivery("acct", tasks[2].Event.ID).State, webhooks.Delivered)
	})

	run("many in one step, of several accounts", func(t *tester) {
		var want []webhooks.Task
		for _, account := range []string{"a", "b"} {
			t.createWebhooks(newWebhook(account, account+"1"), newWebhook(account, account+"2"))
			t.enqueueMany(account, 50, 2)
		}
		want = t.claimAll(200)
		var settlements []webhooks.Settlement
		for _, task := range want {
			settlements = append(settlements, settlement(task, webhooks.Deliver))
		}
		t.settle(settlements...)
		for _, task := range want {
			for _, d := range t.deliveries(task.Event.Account, task.Event.ID) {
				wantSame(t, "State", d.State, webhooks.Delivered)
			}
		}
		t.claimAll(0)
	})

	run("with Rest the webhook may be passed over, until a Deliver or UpdateWebhook", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
		t.enqueueMany("acct", 6, 1)
		tasks := t.claim(webhooks.Claim{Limit: 4, Lease: longLease})
		rest := func(task webhooks.Task) webhooks.Settlement {
			end := settlement(task, webhooks.GiveUp)
			end.Rest = time.Hour
			return end
		}
		t.settle(rest(tasks[0]))
		t.enqueue(newEvent("other", "event"), 1)
		wantSame(t, "number of tasks of another", len(t.claim(webhooks.Claim{Limit: 9, Lease: longLease, Webhooks: []string{"other"}})), 1)
		t.settle(settlement(tasks[1], webhooks.Deliver))
		wantSame(t, "number of tasks after a Deliver", len(t.claim(webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease})), 1)
		t.settle(rest(tasks[2]))
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.URL = "changed" })
		t.settle(rest(tasks[3])) // of the URL before: it changes nothing of the webhook
		wantSame(t, "number of tasks after UpdateWebhook", len(t.claim(webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease})), 1)
	})

	run("none is not an error", func(t *tester) {
		t.settle()
	})
}
