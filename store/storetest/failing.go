package storetest

import (
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// endedAt makes an event, claims its only delivery and returns a settlement whose attempt
// was at the given time.
func (t *tester) endedAt(eventID string, outcome webhooks.Outcome, at time.Time) webhooks.Settlement {
	t.Helper()
	t.enqueue(newEvent("acct", eventID), 1)
	end := settlement(t.claimAll(1)[0], outcome)
	end.Attempt.StartedAt = at
	if outcome == webhooks.Retry {
		end.RetryAfter = time.Hour
	}
	return end
}

// at is so many minutes after some time.
func at(minutes time.Duration) time.Time { return some.Add(minutes * time.Minute) }

// failing tests what becomes of a webhook's FailingSince, WarnedAt and OffReason.
func failing(run runner) {
	type fields struct {
		Since, Warned time.Time
		Off           webhooks.OffReason
	}
	want := func(t *tester, id string, want fields) {
		t.Helper()
		w := t.webhook("acct", id)
		wantSame(t, "FailingSince, WarnedAt and OffReason of "+id, fields{w.FailingSince, w.WarnedAt, w.OffReason}, want)
	}
	warn := func(t *tester, id string, at time.Time) {
		t.Helper()
		t.updateWebhook("acct", id, func(w *webhooks.Webhook) { w.WarnedAt = at })
	}

	for outcome, name := range map[webhooks.Outcome]string{webhooks.Retry: "Retry", webhooks.GiveUp: "GiveUp"} {
		run(name+" begins the failing, at Attempt.StartedAt, and later failures do not move it", func(t *tester) {
			t.createWebhooks(newWebhook("acct", "webhook"))
			want(t, "webhook", fields{})
			t.settle(t.endedAt("1", outcome, at(5)))
			want(t, "webhook", fields{Since: at(5)})
			t.settle(t.endedAt("2", outcome, at(9)))
			t.settle(t.endedAt("3", webhooks.Retry, at(1)))
			t.settle(t.endedAt("4", webhooks.GiveUp, at(10)))
			want(t, "webhook", fields{Since: at(5)})
		})

		for _, class := range []webhooks.ErrorClass{webhooks.ClassInternal, webhooks.ClassExpired} {
			run(name+" of the class "+string(class)+" does not begin it, nor end it", func(t *tester) {
				t.createWebhooks(newWebhook("acct", "webhook"))
				own := t.endedAt("1", outcome, at(1))
				own.Attempt.Class = class
				t.settle(own)
				want(t, "webhook", fields{})
				t.settle(t.endedAt("2", outcome, at(2)))
				own = t.endedAt("3", outcome, at(3))
				own.Attempt.Class = class
				t.settle(own)
				want(t, "webhook", fields{Since: at(2)})
			})
		}
	}

	run("every other class begins it", func(t *tester) {
		for i, class := range []webhooks.ErrorClass{
			webhooks.ClassStatus, webhooks.ClassRedirect, webhooks.ClassTimeout, webhooks.ClassDNS, webhooks.ClassBlocked,
			webhooks.ClassConnect, webhooks.ClassTLS, webhooks.ClassConnection, webhooks.ClassProtocol, "a class of later",
		} {
			id := numbered("webhook", i)
			t.createWebhooks(newWebhook("acct", id))
			end := t.endedAt(numbered("event", i), webhooks.GiveUp, at(1))
			end.Attempt.Class = class
			t.settle(end)
			want(t, id, fields{Since: at(1)})
			t.setActive("acct", id, false)
		}
	})

	run("Deliver ends it, with WarnedAt, and the next failure begins it anew", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(t.endedAt("1", webhooks.Deliver, at(1)))
		want(t, "webhook", fields{})
		t.settle(t.endedAt("2", webhooks.Retry, at(2)))
		warn(t, "webhook", at(2))
		want(t, "webhook", fields{Since: at(2), Warned: at(2)})
		t.settle(t.endedAt("3", webhooks.Deliver, at(3)))
		want(t, "webhook", fields{})
		t.settle(t.endedAt("4", webhooks.GiveUp, at(4)))
		want(t, "webhook", fields{Since: at(4)})
	})

	run("Deliver ends WarnedAt, also without FailingSince", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		warn(t, "webhook", at(1))
		t.settle(t.endedAt("1", webhooks.Deliver, at(2)))
		want(t, "webhook", fields{})
		own := t.endedAt("2", webhooks.Retry, at(3))
		own.Attempt.Class = webhooks.ClassInternal
		warn(t, "webhook", at(3))
		t.settle(own)
		want(t, "webhook", fields{Warned: at(3)})
		t.settle(t.endedAt("3", webhooks.Deliver, at(4)))
		want(t, "webhook", fields{})
	})

	run("Release leaves it as it is", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(t.endedAt("1", webhooks.Release, at(1)))
		want(t, "webhook", fields{})
		failure := settlement(t.claimAll(1)[0], webhooks.GiveUp)
		failure.Attempt.StartedAt = at(2)
		t.settle(failure)
		warn(t, "webhook", at(2))
		t.settle(t.endedAt("2", webhooks.Release, at(3)))
		want(t, "webhook", fields{Since: at(2), Warned: at(2)})
	})

	run("failures leave WarnedAt as it is", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(t.endedAt("1", webhooks.Retry, at(1)))
		warn(t, "webhook", at(3))
		for i, outcome := range []webhooks.Outcome{webhooks.Retry, webhooks.GiveUp} {
			t.settle(t.endedAt(numbered("event", i), outcome, at(time.Duration(4+i))))
			want(t, "webhook", fields{Since: at(1), Warned: at(3)})
		}
	})

	run("settlements of one step come one after the other", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 5, 1)
		var ends []webhooks.Settlement
		for i, task := range t.claimAll(5) {
			end := settlement(task, []webhooks.Outcome{webhooks.Retry, webhooks.Deliver, webhooks.GiveUp, webhooks.Retry, webhooks.Deliver}[i])
			end.Attempt.StartedAt, end.RetryAfter = at(time.Duration(9-i)), time.Hour
			ends = append(ends, end)
		}
		t.settle(ends[:4]...)
		want(t, "webhook", fields{Since: at(7)})
		t.settle(ends[4])
		want(t, "webhook", fields{})
	})

	run("each webhook has its own", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"))
		t.enqueue(newEvent("acct", "event"), 3)
		for _, task := range t.claimAll(3) {
			end := settlement(task, map[string]webhooks.Outcome{"a": webhooks.GiveUp, "b": webhooks.Retry, "c": webhooks.Deliver}[task.Webhook.ID])
			end.Attempt.StartedAt = map[string]time.Time{"a": at(1), "b": at(2), "c": at(3)}[task.Webhook.ID]
			t.settle(end)
		}
		warn(t, "b", at(2))
		want(t, "a", fields{Since: at(1)})
		want(t, "b", fields{Since: at(2), Warned: at(2)})
		want(t, "c", fields{})
	})

	run("Deactivate's reason is OffReason, and the failing stays", func(t *tester) {
		for i, reason := range []webhooks.OffReason{webhooks.OffGone, webhooks.OffFailing} {
			id := numbered("webhook", i)
			t.createWebhooks(newWebhook("acct", id))
			t.settle(t.endedAt(id+" 1", webhooks.Retry, at(1)))
			end := t.endedAt(id+" 2", webhooks.GiveUp, at(2))
			end.Deactivate = reason
			warn(t, id, at(2))
			t.settle(end)
			want(t, id, fields{Since: at(1), Warned: at(2), Off: reason})
			wantSame(t, "Active", t.webhook("acct", id).Active, false)
		}
	})

	run("a task holds them as they are", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(t.endedAt("1", webhooks.Retry, at(1)))
		warn(t, "webhook", at(1))
		t.enqueue(newEvent("acct", "2"), 1)
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, t.webhook("acct", "webhook"))
		want(t, "webhook", fields{Since: at(1), Warned: at(1)})
	})

	run("a stale settlement changes none of it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		stale := func(outcome webhooks.Outcome) {
			t.Helper()
			end := t.endedAt(numbered("event", int(outcome)), webhooks.GiveUp, at(9))
			end.Attempt.Class = webhooks.ClassInternal
			t.settle(end)
			end.Outcome, end.Attempt.Class, end.Deactivate = outcome, webhooks.ClassStatus, webhooks.OffGone
			t.wantStale(end)
		}
		stale(webhooks.Retry)
		stale(webhooks.GiveUp)
		want(t, "webhook", fields{})
		t.settle(t.endedAt("failure", webhooks.Retry, at(1)))
		warn(t, "webhook", at(1))
		stale(webhooks.Deliver)
		stale(webhooks.Release)
		want(t, "webhook", fields{Since: at(1), Warned: at(1)})
		wantSame(t, "Active", t.webhook("acct", "webhook").Active, true)
	})

	run("UpdateWebhook changes them", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for _, to := range []fields{{at(1), at(2), webhooks.OffFailing}, {at(3), time.Time{}, ""}, {time.Time{}, at(4), "a reason of later"}, {}} {
			got := t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
				w.FailingSince, w.WarnedAt, w.OffReason = to.Since, to.Warned, to.Off
			})
			wantSame(t, "UpdateWebhook", fields{got.FailingSince, got.WarnedAt, got.OffReason}, to)
			want(t, "webhook", to)
		}
		t.settle(t.endedAt("1", webhooks.Retry, at(5)))
		want(t, "webhook", fields{Since: at(5)})
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
			if !w.FailingSince.Equal(at(5)) {
				t.Errorf("FailingSince that change is given = %v, want %v", w.FailingSince, at(5))
			}
			w.FailingSince = time.Time{}
		})
		t.settle(t.endedAt("2", webhooks.Retry, at(6)))
		want(t, "webhook", fields{Since: at(6)})
	})

	run("UpdateWebhook and settlements do not undo each other", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 20, 1)
		tasks := t.claimAll(20)
		inParallel(2, func(i int) {
			for n, task := range tasks {
				if i == 0 {
					_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *webhooks.Webhook, _ *notices.Notice) error {
						w.BalanceThreshold, w.WarnedAt = webhooks.Amount(n), at(time.Duration(n))
						return nil
					})
					t.wantError("UpdateWebhook", err, nil)
					continue
				}
				end := settlement(task, webhooks.GiveUp)
				end.Attempt.StartedAt = at(time.Duration(n))
				_, err := t.store.SettleDeliveries(t.Context(), []webhooks.Settlement{end})
				t.wantError("SettleDeliveries", err, nil)
			}
		})
		want(t, "webhook", fields{Since: at(0), Warned: at(19)})
		wantSame(t, "BalanceThreshold", t.webhook("acct", "webhook").BalanceThreshold, 19)
	})

	run("a settlement of a task with another URL changes none of it, but ends the claim", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		old := func(eventID string, outcome webhooks.Outcome, minutes time.Duration) webhooks.Settlement {
			end := t.endedAt(eventID, outcome, at(minutes))
			before := *end.Task.Webhook
			before.URL = "https://example.org/before"
			end.Task.Webhook = &before
			return end
		}
		gone, failed := old("1", webhooks.GiveUp, 1), old("2", webhooks.Retry, 2)
		gone.Deactivate = webhooks.OffGone
		t.settle(gone, failed)
		want(t, "webhook", fields{})
		wantSame(t, "Active", t.webhook("acct", "webhook").Active, true)
		wantSame(t, "State", t.delivery("acct", "1").State, webhooks.Dead)
		wantSame(t, "Attempts", t.delivery("acct", "2").Attempts, []webhooks.Attempt{failed.Attempt})

		t.settle(t.endedAt("3", webhooks.Retry, at(3)))
		t.settle(old("4", webhooks.Deliver, 4), old("5", webhooks.GiveUp, 5))
		want(t, "webhook", fields{Since: at(3)})
		wantSame(t, "State", t.delivery("acct", "4").State, webhooks.Delivered)
		t.settle(old("6", webhooks.Deliver, 6), t.endedAt("7", webhooks.Deliver, at(7)), old("8", webhooks.GiveUp, 8), t.endedAt("9", webhooks.GiveUp, at(9)))
		want(t, "webhook", fields{Since: at(9)})
	})
}
