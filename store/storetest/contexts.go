package storetest

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// fillForEveryMethod stores the records that everyMethod uses, and returns a claimed task to
// settle.
func (t *tester) fillForEveryMethod() Task {
	t.Helper()
	t.createKeys(newKey("acct", "key"))
	t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "another"))
	t.settleEvent(newEvent("acct", "settled"), 1, driver.Deliver)
	t.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Delivered))
	t.enqueue(newEvent("acct", "claimed"), 1)
	task := t.claimAll(1)[0]
	t.enqueue(newEvent("acct", "pending"), 1)
	t.updateAlert("acct", "series 1", keepState("state"))
	t.updateScan("state")
	return task
}

// everyMethod calls the methods of s that take a context, with valid arguments, and returns their
// names and errors. It omits Deliver and the methods of transfer.Store.
func everyMethod(ctx context.Context, s store.Store, task Task) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		methods := []calledMethod{
			{"CreateKey", func() error { return s.CreateKey(ctx, newKey("acct", "new key"), driver.CreateOptions{}) }},
			{"KeyByHash", func() error { _, err := s.KeyByHash(ctx, hashOf("acct", "key")); return err }},
			{"KeyByID", func() error { _, err := s.KeyByID(ctx, "acct", "key"); return err }},
			{"ListKeys", func() error { _, err := s.ListKeys(ctx, "acct", driver.ListQuery{Limit: 9}); return err }},
			{"ExpiringKeys", func() error {
				_, err := s.ExpiringKeys(ctx, driver.ExpiryQuery{Before: some, Limit: 9})
				return err
			}},
			{"UpdateKey", func() error { _, err := s.UpdateKey(ctx, "acct", "key", rename); return err }},
			{"RecordKeyUse", func() error {
				return s.RecordKeyUse(ctx, []driver.KeyUse{{Account: "acct", ID: "key", At: some}})
			}},
			{"DeleteKey", func() error { return s.DeleteKey(ctx, "acct", "key", nil, audit.Entry{}) }},
			{"CreateWebhook", func() error { return s.CreateWebhook(ctx, newWebhook("acct", "new webhook"), driver.CreateOptions{}) }},
			{"WebhookByID", func() error { _, err := s.WebhookByID(ctx, "acct", "webhook"); return err }},
			{"ListWebhooks", func() error { _, err := s.ListWebhooks(ctx, "acct", driver.ListQuery{Limit: 9}); return err }},
			{"UpdateWebhook", func() error { _, err := s.UpdateWebhook(ctx, "acct", "webhook", turnOff); return err }},
			{"Enqueue", func() error { _, err := s.Enqueue(ctx, newEvent("acct", "new event")); return err }},
			{"UpdateAlert", func() error { _, err := s.UpdateAlert(ctx, "acct", "series 1", keepState("new")); return err }},
			{"UpdateScan", func() error { return s.UpdateScan(ctx, keepScan("new")) }},
			{"DueAlerts", func() error { _, err := s.DueAlerts(ctx, 9); return err }},
			{"UnseenKeys", func() error {
				_, err := s.UnseenKeys(ctx, "acct", []driver.DedupKey{newDedupKey("notice")})
				return err
			}},
			{"EnqueueOnce", func() error {
				_, err := s.EnqueueOnce(ctx, newEvent("acct", "new event of dedupKeys"), []driver.DedupKey{newDedupKey("new audit entry")})
				return err
			}},
			{"Load", func() error {
				_, err := s.(driver.Deliveries).Load(ctx, []driver.DeliveryRef{task.Ref})
				return err
			}},
			{"Settle", func() error {
				_, err := s.(driver.Deliveries).Settle(ctx, []driver.AttemptResult{result(task.Ref, 1, driver.Deliver)}, nil)
				return err
			}},
			{"EventDeliveries", func() error { _, err := s.EventDeliveries(ctx, "acct", "pending"); return err }},
			{"EventByID", func() error { _, _, err := s.EventByID(ctx, "acct", "pending"); return err }},
			{"ListEvents", func() error { _, err := s.ListEvents(ctx, "acct", driver.EventQuery{Limit: 9}); return err }},
			{"ListDeliveries", func() error {
				_, err := s.ListDeliveries(ctx, "acct", "webhook", driver.DeliveryQuery{Limit: 9})
				return err
			}},
			{"Redeliver", func() error { return s.Redeliver(ctx, "acct", "webhook", "settled", audit.Entry{}) }},
			{"Probe", func() error { return s.Probe(ctx, "acct", "webhook") }},
			{"CreateRecovery", func() error {
				return s.CreateRecovery(ctx, newRecovery("other", "another", "new recovery", driver.Dead), audit.Entry{})
			}},
			{"RecoveryByID", func() error { _, err := s.RecoveryByID(ctx, "acct", "recovery"); return err }},
			{"AdvanceRecovery", func() error { _, err := s.AdvanceRecovery(ctx, 9); return err }},
			{"Unreported", func() error { _, err := s.(driver.Deliveries).Unreported(ctx, "webhook"); return err }},
			{"Ping", func() error { return s.(driver.Deliveries).Ping(ctx) }},
			{"FailingWebhooks", func() error { _, err := s.FailingWebhooks(ctx, some, driver.ListQuery{Limit: 9}); return err }},
			{"OffWebhooks", func() error { _, err := s.OffWebhooks(ctx, driver.ListQuery{Limit: 9}); return err }},
			{"HeldWebhooks", func() error { _, err := s.HeldWebhooks(ctx, driver.ListQuery{Limit: 9}); return err }},
			{"Now", func() error { _, err := s.Now(ctx); return err }},
			{"Purge", func() error {
				tomorrow := time.Now().AddDate(0, 0, 1)
				_, err := s.Purge(ctx, driver.Purge{Payloads: tomorrow, Attempts: tomorrow, EventIDs: tomorrow, Limit: 99})
				return err
			}},
			{"AccountSizes", func() error { _, err := s.AccountSizes(ctx, []string{"acct"}); return err }},
			{"EraseAccount", func() error { _, _, err := s.EraseAccount(ctx, "acct3", 9); return err }},
			{"DeleteWebhook", func() error { return s.DeleteWebhook(ctx, "acct", "webhook", nil, audit.Entry{}) }},
		}
		methods = append(methods, entryMethods(ctx, s)...)
		for _, method := range methods {
			if !yield(method.name, method.call()) {
				return
			}
		}
	}
}

// A calledMethod is the name of a method and a call with valid arguments.
type calledMethod struct {
	name string
	call func() error
}

func entryMethods(ctx context.Context, s store.Store) []calledMethod {
	return []calledMethod{
		{"AddAuditEntries", func() error {
			_, err := s.AddAuditEntries(ctx, []audit.Entry{newAuditEntry("acct", "notice")})
			return err
		}},
		{"ListAuditEntries", func() error { _, err := s.ListAuditEntries(ctx, "acct", audit.Query{Limit: 9}); return err }},
		{"PendingAccounts", func() error { _, err := s.PendingAccounts(ctx, "", 9); return err }},
		{"PendingAuditEntries", func() error { _, err := s.PendingAuditEntries(ctx, "acct", 9); return err }},
		{"TakeAuditEntries", func() error { return s.TakeAuditEntries(ctx, []uint64{1}) }},
		{"LeaseAudit", func() error { _, err := s.LeaseAudit(ctx, "holder", time.Hour); return err }},
	}
}

func rename(key *driver.Key, _ *audit.Entry) error    { key.Name = "renamed"; return nil }
func turnOff(w *driver.Webhook, _ *audit.Entry) error { w.Active = false; return nil }

func contexts(run runner) {
	run("every method works with a live context", func(t *tester) {
		for method, err := range everyMethod(t.Context(), t.store, t.fillForEveryMethod()) {
			if err != nil {
				t.Errorf("%s = %v", method, err)
			}
		}
	})

	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		run("a method returns the error "+cause.Error()+" and does nothing", func(t *tester) {
			task := t.fillForEveryMethod()
			deliveries := t.list("acct", "webhook", driver.DeliveryQuery{})
			ctx, cancel := context.WithCancel(t.Context())
			if errors.Is(cause, context.DeadlineExceeded) {
				ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			}
			cancel()
			for method, err := range everyMethod(ctx, t.store, task) {
				if !errors.Is(err, cause) {
					t.Errorf("%s = %v, want %v", method, err, cause)
				}
			}
			keys, err := t.store.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 9})
			t.must(err)
			wantSame(t, "keys", keys, []driver.Key{newKey("acct", "key")})
			hooks, err := t.store.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 9})
			t.must(err)
			wantSame(t, "webhooks", hooks, []driver.Webhook{*task.Webhook})
			_, err = t.store.EventDeliveries(t.Context(), "acct", "new event")
			t.wantError("EventDeliveries", err, apierr.ErrNotFound)
			wantSame(t, "ListDeliveries", t.list("acct", "webhook", driver.DeliveryQuery{}), deliveries)
			wantSame(t, "RecoveryByID", t.recovery("acct", "recovery"), newRecovery("acct", "webhook", "recovery", driver.Delivered))
			wantSame(t, "State", t.alert("acct", "series 1"), "state")
			wantSame(t, "the scan's state", t.scanState(), "state")
			t.wantNew([]int{0}, newDedupKey("new audit entry"))
			_, err = t.store.RecoveryByID(t.Context(), "other", "new recovery")
			t.wantError("RecoveryByID", err, apierr.ErrNotFound)
			if got := t.claimAll(1)[0]; got.Event.ID != "pending" || got.Attempt != 1 {
				t.Errorf("claimed attempt %d of %q, want the first of the other delivery", got.Attempt, got.Event.ID)
			}
			t.settle(settlement(task, Postpone))
		})
	}

	// A step whose context ends at any moment must happen completely or, if it returns an error,
	// not at all.
	run("a step whose context ends happens completely or not at all", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		deliveries := 0
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			key, event := newKey("acct", numbered("key", i)), newEvent("acct", numbered("event", i))
			inParallel(3, func(who int) {
				switch who {
				case 0:
					time.Sleep(time.Duration(i) * time.Microsecond)
					cancel()
				case 1:
					err := t.store.CreateKey(ctx, key, driver.CreateOptions{})
					_, found := t.store.KeyByHash(t.Context(), key.Hash)
					if (err == nil) != (found == nil) {
						t.Errorf("CreateKey = %v, but KeyByHash then = %v", err, found)
					}
				case 2:
					_, err := t.store.Enqueue(ctx, event)
					_, found := t.store.EventDeliveries(t.Context(), "acct", event.ID)
					if (err == nil) != (found == nil) {
						t.Errorf("Enqueue = %v, but EventDeliveries then = %v", err, found)
					}
					if err == nil {
						deliveries++
					}
				}
			})
		}
		t.claimAll(deliveries)
	})
}
