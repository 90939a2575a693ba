package storetest

import (
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// failingAgain tests what becomes of a webhook's FailingEvent, FailedAgain and ProvenAt, and
// FailingWebhooks.
func failingAgain(run runner) {
	again := func(t *tester, id, event string, again bool) {
		t.Helper()
		w := t.webhook("acct", id)
		wantSame(t, "FailingEvent and FailedAgain of "+id, []any{w.FailingEvent, w.FailedAgain}, []any{event, again})
	}

	run("the event that fails first is FailingEvent, and another one sets FailedAgain, in one step or several", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		again(t, "webhook", "", false)
		first := t.endedAt("1", webhooks.Retry, at(1))
		first.RetryAfter = 0
		t.settle(first)
		again(t, "webhook", "1", false)
		for range 3 { // the same event
			next := settlement(t.claimAll(1)[0], webhooks.Retry)
			t.settle(next)
			again(t, "webhook", "1", false)
		}
		t.settle(settlement(t.claimAll(1)[0], webhooks.GiveUp))
		own := t.endedAt("2", webhooks.GiveUp, at(2))
		own.Attempt.Class = webhooks.ClassInternal
		t.settle(own)
		again(t, "webhook", "1", false)
		t.settle(t.endedAt("3", webhooks.GiveUp, at(3)))
		again(t, "webhook", "1", true)
		t.settle(t.endedAt("4", webhooks.GiveUp, at(4)))
		again(t, "webhook", "1", true)
		t.settle(t.endedAt("5", webhooks.Deliver, at(5)))
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
		wantSame(t, "Task.Webhook.FailedAgain", t.endedAt("6", webhooks.Deliver, at(6)).Task.Webhook.FailedAgain, true)

		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.EndFailing() })
		again(t, "webhook", "", false)
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.FailingSince = at(1) })
		t.settle(t.endedAt("7", webhooks.GiveUp, at(7)))
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
		wantSame(t, "after one that was before all", list(at(6), webhooks.Page{Limit: 9, After: "d"}), []string{"c", "b", "a"})
		wantSame(t, "past the end", list(at(6), webhooks.Page{Limit: 2, After: "a"}), nil)

		t.setActive("acct", "b", false)
		want("a")
		t.setActive("acct", "b", true)
		want("b", "a")
		t.updateWebhook("acct", "b", func(w *webhooks.Webhook) { w.EndFailing() })
		want("a")
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "a", nil, notices.Notice{}))
		want()
	})

	run("Deliver sets ProvenAt to Attempt.StartedAt if it is zero, and nothing else does", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		proven := func(want time.Time) {
			t.Helper()
			wantSame(t, "ProvenAt", t.webhook("acct", "webhook").ProvenAt, want)
		}
		t.settle(t.endedAt("1", webhooks.Retry, at(1)))
		t.settle(t.endedAt("2", webhooks.GiveUp, at(2)))
		proven(time.Time{})
		elsewhere := t.endedAt("3", webhooks.Deliver, at(3))
		before := *elsewhere.Task.Webhook
		before.URL = "https://example.org/before"
		elsewhere.Task.Webhook = &before
		t.settle(elsewhere)
		proven(time.Time{})
		t.settle(t.endedAt("4", webhooks.Deliver, at(4)), t.endedAt("5", webhooks.Deliver, at(5)))
		proven(at(4))
		t.settle(t.endedAt("6", webhooks.GiveUp, at(6)))
		t.settle(t.endedAt("7", webhooks.Deliver, at(7)))
		proven(at(4))
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.ProvenAt = time.Time{} })
		proven(time.Time{})
		t.settle(t.endedAt("8", webhooks.GiveUp, at(8)), t.endedAt("9", webhooks.Deliver, at(9)))
		proven(at(9))
		t.settle(t.endedAt("a", webhooks.Deliver, at(10)))
		proven(at(9))
		wantSame(t, "Task.Webhook.ProvenAt", t.endedAt("b", webhooks.Deliver, at(11)).Task.Webhook.ProvenAt, at(9))
	})
}
