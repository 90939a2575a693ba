package storetest

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// webhookValues tests the general rules of driver.WebhookStore.
func webhookValues(run runner) {
	run("returns every field unchanged", func(t *tester) {
		full, bare := newWebhook("acct", "full"), newWebhook("acct", "bare")
		full.Threshold, full.SecretsVersion, full.OffReason = math.MaxUint64, 3, driver.OffFailing
		full.FailingEvent, full.FailedAgain, full.Held = "event", true, true
		full.OffAt, full.Headers, full.PausedUntil = some.Add(time.Hour), someHeaders(), driver.NoEnd
		full.ProvenAt, full.FailingSince, full.WarnedAt = some.Add(-time.Minute), some.Add(time.Minute), some.Add(time.Hour)
		full.PastEvents, full.EventScopes = []driver.EventType{fourthType, thirdType}, []scopes.Scope{scopes.FilesRead, "teams:read"}
		full.PreviousSecret, full.PreviousSecretExpiresAt = signing.NewSecret(), some.Add(time.Second)
		bare.Active, bare.Threshold, bare.Secret = false, 0, signing.Secret{}
		t.createWebhooks(full, bare)
		wantSame(t, "WebhookByID", t.webhook("acct", "full"), full)
		wantSame(t, "WebhookByID", t.webhook("acct", "bare"), bare)
	})

	run("keeps the order of event types", func(t *tester) {
		all := []driver.EventType{eventType, otherType, thirdType, fourthType}
		for i := range all {
			w := newWebhook("acct", numbered("webhook", i))
			w.Events = append(slices.Clone(all[i:]), all[:i]...)
			t.createWebhooks(w)
			wantSame(t, "WebhookByID", t.webhook("acct", w.ID), w)
		}
	})

	run("accepts secrets of any length", func(t *tester) {
		for i, text := range []string{
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
			"whsec_" + strings.Repeat("/+A0", 21) + "AA==",
		} {
			secret, err := signing.ParseSecret(text)
			t.must(err)
			w := newWebhook("acct", numbered("webhook", i))
			w.Secret = secret
			t.createWebhooks(w)
			if got := t.webhook("acct", w.ID).Secret.Reveal(); got != text {
				t.Errorf("secret %d changed", i)
			}
		}
	})

	run("returns times in milliseconds and UTC", func(t *tester) {
		zone := time.FixedZone("", 5*3600)
		w, event := newWebhook("acct", "webhook"), newEvent("acct", "event")
		localWebhook, localEvent := w, event
		localWebhook.CreatedAt, localEvent.Timestamp = w.CreatedAt.In(zone), event.Timestamp.In(zone)
		t.createWebhooks(localWebhook)
		t.enqueue(localEvent, 1)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		task := t.claimAll(1)[0]
		wantSame(t, "Task.Event", task.Event, event)
		wantSame(t, "Task.Webhook", *task.Webhook, w)
		end := settlement(task, driver.Deliver)
		want := end.Attempt
		end.Attempt.StartedAt = end.Attempt.StartedAt.In(zone)
		t.settle(end)
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, []driver.Attempt{want})
		recovery := newRecovery("acct", "webhook", "recovery", driver.Dead)
		local := recovery
		local.From, local.To, local.CreatedAt = recovery.From.In(zone), recovery.To.In(zone), recovery.CreatedAt.In(zone)
		t.createRecoveries(local)
		wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), recovery)
	})

	run("truncates times to milliseconds", func(t *tester) {
		const most = time.Millisecond - time.Nanosecond
		w, event, recovery := newWebhook("acct", "webhook"), newEvent("acct", "event"), newRecovery("acct", "webhook", "recovery", driver.Dead)
		w.FailingSince, w.WarnedAt, w.PreviousSecretExpiresAt = some, some.Add(time.Hour), some.Add(time.Minute)
		fineWebhook, fineEvent, fineRecovery := w, event, recovery
		for _, at := range []*time.Time{
			&fineWebhook.CreatedAt, &fineWebhook.FailingSince, &fineWebhook.WarnedAt, &fineWebhook.PreviousSecretExpiresAt, &fineEvent.Timestamp,
			&fineRecovery.From, &fineRecovery.To, &fineRecovery.CreatedAt,
		} {
			*at = at.Add(most)
		}
		t.createWebhooks(fineWebhook)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		t.createRecoveries(fineRecovery)
		wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), recovery)
		t.enqueue(fineEvent, 1)
		task := t.claimAll(1)[0]
		wantSame(t, "Task.Event", task.Event, event)
		end := settlement(task, driver.GiveUp)
		want := end.Attempt
		end.Attempt.StartedAt = want.StartedAt.Add(most)
		t.settle(end)
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, []driver.Attempt{want})
		changed := t.updateWebhook("acct", "webhook", func(w *driver.Webhook) {
			w.FailingSince, w.WarnedAt, w.PreviousSecretExpiresAt = some.Add(most), some.Add(most), some.Add(most)
		})
		wantSame(t, "changed times", []time.Time{changed.FailingSince, changed.WarnedAt, changed.PreviousSecretExpiresAt}, []time.Time{some, some, some})
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), changed)
	})

	run("accepts any strings", func(t *tester) {
		list := []string{long("a", 128), long("b", 128), strings.Repeat("é", 64)}
		list = append(list, oddStrings...)
		for i, s := range list {
			w, event := newWebhook(s, s), newEvent(s, s)
			w.URL = list[len(list)-1-i]
			if i == 0 {
				w.URL = long("c", 4096)
			}
			t.createWebhooks(w)
			wantSame(t, "WebhookByID", t.webhook(s, s), w)
			t.enqueue(event, 1)
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Event", task.Event, event)
			wantSame(t, "Task.Webhook", *task.Webhook, w)
			end := settlement(task, driver.Deliver)
			end.Attempt.Error, end.Attempt.Response = w.URL, s
			t.settle(end)
			d := t.delivery(s, s)
			wantSame(t, "EventDeliveries", d, driver.Delivery{
				EventID: s, WebhookID: s, Type: event.Type, Resource: event.Resource, PublishedAt: d.PublishedAt,
				State: driver.Delivered, Attempts: []driver.Attempt{end.Attempt},
			})
			wantSame(t, "ListDeliveries", t.list(s, s, driver.DeliveryQuery{}), []driver.Delivery{d})
			recovery := newRecovery(s, s, s, driver.Dead)
			t.createRecoveries(recovery)
			wantSame(t, "RecoveryByID", t.recovery(s, s), recovery)
		}
	})

	run("copies values in", func(t *tester) {
		w, event := newWebhook("acct", "webhook"), newEvent("acct", "event")
		givenWebhook := w
		w.PastEvents = []driver.EventType{fourthType}
		givenWebhook.Events, givenWebhook.PastEvents = slices.Clone(w.Events), slices.Clone(w.PastEvents)
		t.createWebhooks(givenWebhook)
		t.enqueue(event, 1)
		givenWebhook.Events[0], givenWebhook.PastEvents[0] = "changed", "changed"
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)

		w.Events = []driver.EventType{eventType, thirdType}
		left := slices.Clone(w.Events)
		var kept *driver.Webhook
		t.updateWebhook("acct", "webhook", func(w *driver.Webhook) {
			w.Events, kept = left, w
		})
		left[1], kept.Active = "changed", false
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		wantSame(t, "Task.Event", t.claimAll(1)[0].Event, event)

		recovery := newRecovery("acct", "webhook", "recovery", driver.Dead, driver.Skipped)
		givenRecovery := recovery
		givenRecovery.States = slices.Clone(recovery.States)
		t.createRecoveries(givenRecovery)
		givenRecovery.States[0] = "changed"
		wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), recovery)
	})

	run("copies values out", func(t *tester) {
		w, event := newWebhook("acct", "webhook"), newEvent("acct", "event")
		w.PastEvents = []driver.EventType{fourthType}
		t.createWebhooks(w)
		t.enqueue(event, 1)

		t.webhook("acct", "webhook").Events[0] = "changed by WebhookByID's caller"
		t.webhook("acct", "webhook").PastEvents[0] = "changed by WebhookByID's caller"
		list, err := t.store.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 9})
		t.must(err)
		list[0].Events[0] = "changed by ListWebhooks's caller"
		_, err = t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
			w.Events[0] = "changed by a failed change"
			return errChange
		})
		t.wantError("UpdateWebhook", err, errChange)
		t.updateWebhook("acct", "webhook", func(*driver.Webhook) {}).Events[0] = "changed by UpdateWebhook's caller"
		task := t.claimAll(1)[0]
		t.settle(settlement(task, driver.Retry))
		t.delivery("acct", "event").Attempts[0].Status = 999
		t.list("acct", "webhook", driver.DeliveryQuery{})[0].Attempts[0].Status = 999
		recovery := newRecovery("acct", "webhook", "recovery", driver.Dead)
		t.createRecoveries(recovery)
		t.recovery("acct", "recovery").States[0] = "changed by RecoveryByID's caller"

		wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), recovery)
		w.NoteFailure(task.Event.ID, attemptOf(task).StartedAt)
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		again := t.await(1)[0]
		wantSame(t, "Task.Webhook", *again.Webhook, w)
		wantSame(t, "Task.Event", again.Event, event)
		wantSame(t, "Attempts", t.delivery("acct", "event").Attempts, []driver.Attempt{attemptOf(task)})
	})

	run("an ID belongs to one account", func(t *tester) {
		w := newWebhook("acct", "webhook")
		t.createWebhooks(w, newWebhook("other", "other webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		for _, ref := range [][2]string{{"other", "webhook"}, {"acct", "other webhook"}, {"nobody", "webhook"}, {"ACCT", "webhook"}, {"acct", "WEBHOOK"}, {"acc", "twebhook"}} {
			account, id := ref[0], ref[1]
			_, err := t.store.WebhookByID(t.Context(), account, id)
			t.wantError("WebhookByID", err, apierr.ErrNotFound)
			_, err = t.store.UpdateWebhook(t.Context(), account, id, func(*driver.Webhook, *audit.Entry) error {
				t.Error("UpdateWebhook called the function change for a webhook that does not exist")
				return nil
			})
			t.wantError("UpdateWebhook", err, apierr.ErrNotFound)
			t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), account, id, nil, audit.Entry{}), apierr.ErrNotFound)
			_, err = t.store.EventDeliveries(t.Context(), account, "event")
			if account != "acct" {
				t.wantError("EventDeliveries", err, apierr.ErrNotFound)
			}
			_, err = t.store.ListDeliveries(t.Context(), account, id, driver.DeliveryQuery{Limit: 9})
			t.wantError("ListDeliveries", err, apierr.ErrNotFound)
			t.wantError("Redeliver", t.store.Redeliver(t.Context(), account, id, "event", audit.Entry{}), apierr.ErrNotFound)
			t.wantError("CreateRecovery", t.store.CreateRecovery(t.Context(), newRecovery(account, id, "recovery", driver.Dead), audit.Entry{}), apierr.ErrNotFound)
		}
		wantSame(t, "WebhookByID", t.webhook("acct", "webhook"), w)
		t.claimAll(1)
	})

	run("keeps account and ID apart", func(t *tester) {
		refs := [][2]string{
			{"a", "bc"}, {"ab", "c"}, {"a/b", "d"}, {"a", "b/d"}, {"a:b", "e"}, {"a", "b:e"}, {"a b", "f"}, {"a", "b f"}, {"A", "Bc"},
		}
		pending := map[string]int{} // deliveries of an event, by account
		for _, ref := range refs {
			t.createWebhooks(newWebhook(ref[0], ref[1]))
			pending[ref[0]]++
		}
		for _, ref := range refs {
			t.enqueue(newEvent(ref[0], ref[1]), pending[ref[0]])
		}
		for _, gone := range refs {
			t.must(t.store.DeleteWebhook(t.Context(), gone[0], gone[1], nil, audit.Entry{}))
			pending[gone[0]]--
			for _, ref := range refs {
				wantSame(t, "number of deliveries", len(t.deliveries(ref[0], ref[1])), pending[ref[0]])
			}
		}
		t.claimAll(0)
	})
}
