package storetest

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

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
	// ended makes an event, claims its only delivery and returns a settlement
	// whose attempt was at the given time.
	ended := func(t *tester, eventID string, outcome webhooks.Outcome, at time.Time) webhooks.Settlement {
		t.Helper()
		t.enqueue(newEvent("acct", eventID), 1)
		end := settlement(t.claimAll(1)[0], outcome)
		end.Attempt.StartedAt, end.RetryAfter = at, time.Hour
		return end
	}
	at := func(minutes time.Duration) time.Time { return some.Add(minutes * time.Minute) }
	warn := func(t *tester, id string, at time.Time) {
		t.Helper()
		t.updateWebhook("acct", id, func(w *webhooks.Webhook) { w.WarnedAt = at })
	}

	for outcome, name := range map[webhooks.Outcome]string{webhooks.Retry: "Retry", webhooks.GiveUp: "GiveUp"} {
		run(name+" begins the failing, at Attempt.StartedAt, and later failures do not move it", func(t *tester) {
			t.createWebhooks(newWebhook("acct", "webhook"))
			want(t, "webhook", fields{})
			t.settle(ended(t, "1", outcome, at(5)))
			want(t, "webhook", fields{Since: at(5)})
			t.settle(ended(t, "2", outcome, at(9)))
			t.settle(ended(t, "3", webhooks.Retry, at(1)))
			t.settle(ended(t, "4", webhooks.GiveUp, at(10)))
			want(t, "webhook", fields{Since: at(5)})
		})

		run(name+" of ClassInternal does not begin it, nor end it", func(t *tester) {
			t.createWebhooks(newWebhook("acct", "webhook"))
			own := ended(t, "1", outcome, at(1))
			own.Attempt.Class = webhooks.ClassInternal
			t.settle(own)
			want(t, "webhook", fields{})
			t.settle(ended(t, "2", outcome, at(2)))
			own = ended(t, "3", outcome, at(3))
			own.Attempt.Class = webhooks.ClassInternal
			t.settle(own)
			want(t, "webhook", fields{Since: at(2)})
		})
	}

	run("every other class begins it", func(t *tester) {
		for i, class := range []webhooks.ErrorClass{
			webhooks.ClassStatus, webhooks.ClassRedirect, webhooks.ClassTimeout, webhooks.ClassDNS, webhooks.ClassBlocked,
			webhooks.ClassConnect, webhooks.ClassTLS, webhooks.ClassConnection, webhooks.ClassProtocol, "a class of later",
		} {
			id := numbered("webhook", i)
			t.createWebhooks(newWebhook("acct", id))
			end := ended(t, numbered("event", i), webhooks.GiveUp, at(1))
			end.Attempt.Class = class
			t.settle(end)
			want(t, id, fields{Since: at(1)})
			t.setActive("acct", id, false)
		}
	})

	run("Deliver ends it, with WarnedAt, and the next failure begins it anew", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(ended(t, "1", webhooks.Deliver, at(1)))
		want(t, "webhook", fields{})
		t.settle(ended(t, "2", webhooks.Retry, at(2)))
		warn(t, "webhook", at(2))
		want(t, "webhook", fields{Since: at(2), Warned: at(2)})
		t.settle(ended(t, "3", webhooks.Deliver, at(3)))
		want(t, "webhook", fields{})
		t.settle(ended(t, "4", webhooks.GiveUp, at(4)))
		want(t, "webhook", fields{Since: at(4)})
	})

	run("Deliver ends WarnedAt, also without FailingSince", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		warn(t, "webhook", at(1))
		t.settle(ended(t, "1", webhooks.Deliver, at(2)))
		want(t, "webhook", fields{})
		own := ended(t, "2", webhooks.Retry, at(3))
		own.Attempt.Class = webhooks.ClassInternal
		warn(t, "webhook", at(3))
		t.settle(own)
		want(t, "webhook", fields{Warned: at(3)})
		t.settle(ended(t, "3", webhooks.Deliver, at(4)))
		want(t, "webhook", fields{})
	})

	run("Release leaves it as it is", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(ended(t, "1", webhooks.Release, at(1)))
		want(t, "webhook", fields{})
		failure := settlement(t.claimAll(1)[0], webhooks.GiveUp)
		failure.Attempt.StartedAt = at(2)
		t.settle(failure)
		warn(t, "webhook", at(2))
		t.settle(ended(t, "2", webhooks.Release, at(3)))
		want(t, "webhook", fields{Since: at(2), Warned: at(2)})
	})

	run("failures leave WarnedAt as it is", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(ended(t, "1", webhooks.Retry, at(1)))
		warn(t, "webhook", at(3))
		for i, outcome := range []webhooks.Outcome{webhooks.Retry, webhooks.GiveUp} {
			t.settle(ended(t, numbered("event", i), outcome, at(time.Duration(4+i))))
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

	again := func(t *tester, id, event string, again bool) {
		t.Helper()
		w := t.webhook("acct", id)
		wantSame(t, "FailingEvent and FailedAgain of "+id, []any{w.FailingEvent, w.FailedAgain}, []any{event, again})
	}

	run("the event that fails first is FailingEvent, and another one sets FailedAgain, in one step or several", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		again(t, "webhook", "", false)
		first := ended(t, "1", webhooks.Retry, at(1))
		first.RetryAfter = 0
		t.settle(first)
		again(t, "webhook", "1", false)
		for range 3 { // the same event
			next := settlement(t.claimAll(1)[0], webhooks.Retry)
			t.settle(next)
			again(t, "webhook", "1", false)
		}
		t.settle(settlement(t.claimAll(1)[0], webhooks.GiveUp))
		own := ended(t, "2", webhooks.GiveUp, at(2))
		own.Attempt.Class = webhooks.ClassInternal
		t.settle(own)
		again(t, "webhook", "1", false)
		t.settle(ended(t, "3", webhooks.GiveUp, at(3)))
		again(t, "webhook", "1", true)
		t.settle(ended(t, "4", webhooks.GiveUp, at(4)))
		again(t, "webhook", "1", true)
		t.settle(ended(t, "5", webhooks.Deliver, at(5)))
		again(t, "webhook", "", false)

		t.enqueueMany("acct", 4, 1)
		var ends []webhooks.Settlement
		for i, task := range t.claimAll(4) {
			end := settlement(task, []webhooks.Outcome{webhooks.GiveUp, webhooks.Deliver, webhooks.GiveUp, webhooks.GiveUp}[i])
			ends = append(ends, end)
		}
		t.settle(ends[:3]...)
		again(t, "webhook", ends[2].Task.Event.ID, false)
		t.settle(ends[3])
		again(t, "webhook", ends[2].Task.Event.ID, true)
		wantSame(t, "Task.Webhook.FailedAgain", ended(t, "6", webhooks.Deliver, at(6)).Task.Webhook.FailedAgain, true)

		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.EndFailing() })
		again(t, "webhook", "", false)
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.FailingSince = at(1) })
		t.settle(ended(t, "7", webhooks.GiveUp, at(7)))
		again(t, "webhook", "7", false)
	})

	run("FailingWebhooks are active, have failed again, and since long enough", func(t *tester) {
		list := func(since time.Time, page webhooks.Page) (ids []string) {
			t.Helper()
			found, err := t.store.FailingWebhooks(t.Context(), since, page)
			t.must(err)
			for _, w := range found {
				wantSame(t, "FailingWebhooks", w, t.webhook(w.Account, w.ID))
				ids = append(ids, w.ID)
			}
			return ids
		}
		all := webhooks.Page{Limit: 9}
		want := func(ids ...string) {
			t.Helper()
			wantSame(t, "FailingWebhooks", list(at(5), all), ids)
		}
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"), newWebhook("acct", "well"))
		fail := func(account, id string, event string, minutes time.Duration) {
			t.Helper()
			t.enqueue(newEvent(account, event), map[string]int{"acct": 3, "other": 1}[account])
			for range map[string]int{"acct": 3, "other": 1}[account] {
				task := t.claim(webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease})[0]
				end := settlement(task, webhooks.Release)
				if end.Outcome = webhooks.Deliver; task.Webhook.ID == id {
					end.Outcome = webhooks.GiveUp
				} else if task.Webhook.ID != "well" {
					end.Outcome, end.Attempt.Class = webhooks.GiveUp, webhooks.ClassInternal // means nothing
				}
				end.Attempt.StartedAt = at(minutes)
				t.settle(end)
			}
		}
		want()
		fail("acct", "a", "1", 1)
		fail("acct", "b", "2", 5)
		fail("other", "c", "3", 6)
		want()
		fail("acct", "a", "4", 7)
		want("a")
		fail("acct", "b", "5", 8)
		fail("other", "c", "6", 8)
		want("b", "a")
		wantSame(t, "FailingWebhooks before", list(at(5).Add(-time.Millisecond), all), []string{"a"})
		wantSame(t, "FailingWebhooks of all", list(at(6), all), []string{"c", "b", "a"})
		wantSame(t, "a page", list(at(6), webhooks.Page{Limit: 2}), []string{"c", "b"})
		wantSame(t, "the next", list(at(6), webhooks.Page{Limit: 2, After: "b"}), []string{"a"})
		wantSame(t, "after one that is not there", list(at(6), webhooks.Page{Limit: 2, After: "bb"}), []string{"b", "a"})
		wantSame(t, "past the end", list(at(6), webhooks.Page{Limit: 2, After: "a"}), nil)

		t.setActive("acct", "b", false)
		want("a")
		t.setActive("acct", "b", true)
		want("b", "a")
		t.updateWebhook("acct", "b", func(w *webhooks.Webhook) { w.EndFailing() })
		want("a")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "a", nil))
		want()
	})

	run("Deliver sets ProvenAt to Attempt.StartedAt if it is zero, and nothing else does", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		proven := func(want time.Time) {
			t.Helper()
			wantSame(t, "ProvenAt", t.webhook("acct", "webhook").ProvenAt, want)
		}
		t.settle(ended(t, "1", webhooks.Retry, at(1)))
		t.settle(ended(t, "2", webhooks.GiveUp, at(2)))
		proven(time.Time{})
		elsewhere := ended(t, "3", webhooks.Deliver, at(3))
		before := *elsewhere.Task.Webhook
		before.URL = "https://example.org/before"
		elsewhere.Task.Webhook = &before
		t.settle(elsewhere)
		proven(time.Time{})
		t.settle(ended(t, "4", webhooks.Deliver, at(4)), ended(t, "5", webhooks.Deliver, at(5)))
		proven(at(4))
		t.settle(ended(t, "6", webhooks.GiveUp, at(6)))
		t.settle(ended(t, "7", webhooks.Deliver, at(7)))
		proven(at(4))
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.ProvenAt = time.Time{} })
		proven(time.Time{})
		t.settle(ended(t, "8", webhooks.GiveUp, at(8)), ended(t, "9", webhooks.Deliver, at(9)))
		proven(at(9))
		t.settle(ended(t, "a", webhooks.Deliver, at(10)))
		proven(at(9))
		wantSame(t, "Task.Webhook.ProvenAt", ended(t, "b", webhooks.Deliver, at(11)).Task.Webhook.ProvenAt, at(9))
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
			t.settle(ended(t, id+" 1", webhooks.Retry, at(1)))
			end := ended(t, id+" 2", webhooks.GiveUp, at(2))
			end.Deactivate = reason
			warn(t, id, at(2))
			t.settle(end)
			want(t, id, fields{Since: at(1), Warned: at(2), Off: reason})
			wantSame(t, "Active", t.webhook("acct", id).Active, false)
		}
	})

	run("a task holds them as they are", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.settle(ended(t, "1", webhooks.Retry, at(1)))
		warn(t, "webhook", at(1))
		t.enqueue(newEvent("acct", "2"), 1)
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, t.webhook("acct", "webhook"))
		want(t, "webhook", fields{Since: at(1), Warned: at(1)})
	})

	run("a stale settlement changes none of it", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		stale := func(outcome webhooks.Outcome) {
			t.Helper()
			end := ended(t, numbered("event", int(outcome)), webhooks.GiveUp, at(9))
			end.Attempt.Class = webhooks.ClassInternal
			t.settle(end)
			end.Outcome, end.Attempt.Class, end.Deactivate = outcome, webhooks.ClassStatus, webhooks.OffGone
			t.wantStale(end)
		}
		stale(webhooks.Retry)
		stale(webhooks.GiveUp)
		want(t, "webhook", fields{})
		t.settle(ended(t, "failure", webhooks.Retry, at(1)))
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
		t.settle(ended(t, "1", webhooks.Retry, at(5)))
		want(t, "webhook", fields{Since: at(5)})
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
			if !w.FailingSince.Equal(at(5)) {
				t.Errorf("FailingSince that change is given = %v, want %v", w.FailingSince, at(5))
			}
			w.FailingSince = time.Time{}
		})
		t.settle(ended(t, "2", webhooks.Retry, at(6)))
		want(t, "webhook", fields{Since: at(6)})
	})

	run("UpdateWebhook and settlements do not undo each other", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 20, 1)
		tasks := t.claimAll(20)
		inParallel(2, func(i int) {
			for n, task := range tasks {
				if i == 0 {
					_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *webhooks.Webhook) error {
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
			end := ended(t, eventID, outcome, at(minutes))
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

		t.settle(ended(t, "3", webhooks.Retry, at(3)))
		t.settle(old("4", webhooks.Deliver, 4), old("5", webhooks.GiveUp, 5))
		want(t, "webhook", fields{Since: at(3)})
		wantSame(t, "State", t.delivery("acct", "4").State, webhooks.Delivered)
		t.settle(old("6", webhooks.Deliver, 6), ended(t, "7", webhooks.Deliver, at(7)), old("8", webhooks.GiveUp, 8), ended(t, "9", webhooks.GiveUp, at(9)))
		want(t, "webhook", fields{Since: at(9)})
	})
}
