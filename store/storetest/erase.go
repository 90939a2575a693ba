package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// erase erases an account a few records at a time, and returns the receipt.
func (t *tester) erase(account string) store.Receipt {
	t.Helper()
	for end := time.Now().Add(eventTimeout); time.Now().Before(end); {
		erased, more, err := t.store.EraseAccount(t.Context(), account, 3)
		t.must(err)
		if !more {
			return erased
		}
	}
	t.Fatalf("erasure of %s did not end within %v", account, eventTimeout)
	return store.Receipt{}
}

// fillAccount stores records of every kind in an account, claims one of its deliveries, and returns
// the task.
func (t *tester) fillAccount(account string) Task {
	t.Helper()
	id := func(name string) string { return name + " of " + account }
	request := driver.CreateOptions{IdempotencyKey: "request of " + account, Fingerprint: [32]byte{1}, IdempotencyTTL: time.Hour}
	used := rotatedKey(account, id("used"))
	t.must(t.store.CreateKey(t.Context(), used, request))
	t.createKeys(newKey(account, id("key")))
	t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{
		{Account: account, ID: used.ID, Hash: used.Hash, At: some}, {Account: account, ID: used.ID, Hash: used.Previous, At: some},
	}))
	t.must(t.store.CreateWebhook(t.Context(), newWebhook(account, id("on")), request))
	off := newWebhook(account, id("off"))
	off.Active = false
	t.createWebhooks(off, newWebhook(account, id("gone")))
	claim := func(webhook string) Task {
		tasks := t.claim(1, id(webhook))
		if len(tasks) != 1 {
			t.Fatalf("claimed %d deliveries of %s, want 1", len(tasks), id(webhook))
		}
		return tasks[0]
	}
	nobodys := newEvent(account, id("nobody's"))
	nobodys.Type = "unheard"
	t.enqueue(nobodys, 0)
	for i, outcome := range []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry} {
		t.enqueue(newEvent(account, numbered(account, i)), 2)
		end := settlement(claim("on"), outcome)
		end.RetryAfter = time.Hour
		t.settle(end)
	}
	t.settle(settlement(claim("gone"), driver.Deliver))
	t.must(t.store.DeleteWebhook(t.Context(), account, id("gone"), nil, audit.Entry{}))
	{
		added, err := t.store.AddAuditEntries(t.Context(), []audit.Entry{
			{ID: id("aud_a"), Account: account, Action: audit.KeyCreated, Pending: true}, {ID: id("aud_b"), Account: account, Action: audit.KeyDeleted},
		})
		t.must(err)
		wantSame(t, "audit", added, 2)
	}
	t.createRecoveries(newRecovery(account, id("on"), id("recovery"), driver.Dead))
	t.updateAlert(account, "series", keepState("state"))
	t.updateAlert(account, "series 1", func(step *driver.AlertStep) error { step.State, step.Deferrable = []byte("later"), true; return nil })
	t.enqueueOnce(newEvent(account, id("once")), 1, newDedupKey("a of "+account), newDedupKey("b of "+account))
	leased := claim("on")
	t.enqueue(newEvent(account, id("fresh")), 1)
	return leased
}

// filled returns the expected receipt of erasing an account that fillAccount has filled.
func (t *tester) filled() store.Receipt {
	return store.Receipt{Keys: 2, Webhooks: 2, Events: 6, Deliveries: 11, Recoveries: 1, Alerts: 2, DedupKeys: 2, IdempotencyKeys: 2, AuditEntries: 2}
}

// wantNothing checks that no method finds a record stored by fillAccount.
func (t *tester) wantNothing(account string) {
	t.Helper()
	ctx := t.Context()
	id := func(name string) string { return name + " of " + account }
	for _, hash := range []driver.Hash{hashOf(account, id("used")), hashOf(account, id("used"), "previous"), hashOf(account, id("key"))} {
		t.wantNoKeyAt(hash)
	}
	keys, err := t.store.ListKeys(ctx, account, driver.ListQuery{Limit: 9})
	t.must(err)
	wantSame(t, "ListKeys", keys, []driver.Key{})
	hooks, err := t.store.ListWebhooks(ctx, account, driver.ListQuery{Limit: 9})
	t.must(err)
	wantSame(t, "ListWebhooks", hooks, []driver.Webhook{})
	failing, err := t.store.FailingWebhooks(ctx, some.AddDate(9, 0, 0), driver.ListQuery{Limit: 9})
	t.must(err)
	for _, w := range failing {
		if w.Account == account {
			t.Errorf("FailingWebhooks lists %s", w.ID)
		}
	}
	for _, name := range []string{"used", "key"} {
		_, err := t.store.KeyByID(ctx, account, id(name))
		t.wantError("KeyByID", err, apierr.ErrNotFound)
		_, err = t.store.UpdateKey(ctx, account, id(name), rename)
		t.wantError("UpdateKey", err, apierr.ErrNotFound)
		t.wantError("DeleteKey", t.store.DeleteKey(ctx, account, id(name), nil, audit.Entry{}), apierr.ErrNotFound)
		t.must(t.store.RecordKeyUse(ctx, []driver.KeyUse{{Account: account, ID: id(name), At: some}}))
	}
	page, err := t.store.ListAuditEntries(ctx, account, audit.Query{Limit: 9})
	t.must(err)
	wantSame(t, "ListAuditEntries", page, audit.Page{})
	for _, n := range t.allPending() {
		if n.Entry.Account == account {
			t.Errorf("PendingAuditEntries lists %s", n.Entry.ID)
		}
	}
	events, err := t.store.ListEvents(ctx, account, driver.EventQuery{Limit: 9})
	t.must(err)
	wantSame(t, "ListEvents", events, driver.EventPage{})
	for _, name := range []string{"on", "off", "gone"} {
		_, err := t.store.WebhookByID(ctx, account, id(name))
		t.wantError("WebhookByID", err, apierr.ErrNotFound)
		_, err = t.store.UpdateWebhook(ctx, account, id(name), turnOff)
		t.wantError("UpdateWebhook", err, apierr.ErrNotFound)
		t.wantError("DeleteWebhook", t.store.DeleteWebhook(ctx, account, id(name), nil, audit.Entry{}), apierr.ErrNotFound)
		_, err = t.store.ListDeliveries(ctx, account, id(name), driver.DeliveryQuery{Limit: 9})
		t.wantError("ListDeliveries", err, apierr.ErrNotFound)
		t.wantError("Probe", t.store.Probe(ctx, account, id(name)), apierr.ErrNotFound)
		t.wantError("CreateRecovery", t.store.CreateRecovery(ctx, newRecovery(account, id(name), "new", driver.Dead), audit.Entry{}), apierr.ErrNotFound)
		backlog, err := t.worker().Backlog(ctx, id(name))
		t.must(err)
		wantSame(t, "Backlog", backlog, driver.Backlog{})
	}
	for _, event := range []string{id("nobody's"), numbered(account, 0), numbered(account, 1), numbered(account, 2), id("once"), id("fresh")} {
		_, err := t.store.EventDeliveries(ctx, account, event)
		t.wantError("EventDeliveries of "+event, err, apierr.ErrNotFound)
		_, _, err = t.store.EventByID(ctx, account, event)
		t.wantError("EventByID of "+event, err, apierr.ErrNotFound)
		t.wantError("Redeliver", t.store.Redeliver(ctx, account, id("on"), event, audit.Entry{}), apierr.ErrNotFound)
	}
	_, err = t.store.RecoveryByID(ctx, account, id("recovery"))
	t.wantError("RecoveryByID", err, apierr.ErrNotFound)
	fresh, err := t.store.UnseenKeys(ctx, account, []driver.DedupKey{newDedupKey("a of " + account), newDedupKey("b of " + account)})
	t.must(err)
	wantSame(t, "UnseenKeys", fresh, []int{0, 1})
	due, err := t.store.DueAlerts(ctx, 9)
	t.must(err)
	for _, series := range due {
		if series.Account == account {
			t.Errorf("DueAlerts lists %s", account)
		}
	}
	for _, series := range []string{"series", "series 1"} {
		wantSame(t, "State", t.alert(account, series), "")
	}
}

func erasing(run runner) {
	run("removes and counts all records of the account, and no others", func(t *tester) {
		leased, others := t.fillAccount("acct"), t.fillAccount("acct2")
		t.advance(99)
		want := t.settledOf("acct2")
		wantSame(t, "receipt", t.erase("acct"), t.filled())
		t.wantNothing("acct")
		t.wantStale(settlement(leased, driver.Deliver))
		wantSame(t, "deliveries of another account", t.settledOf("acct2"), want)
		t.wantKeyAt(hashOf("acct2", "key of acct2"), newKey("acct2", "key of acct2"))
		wantSame(t, "State", t.alert("acct2", "series 1"), "later")
		for _, task := range t.claimAll(2) { // all but the retry, which is due later
			wantSame(t, "Task.Webhook.Account", task.Webhook.Account, "acct2")
		}
		t.settle(settlement(others, driver.Deliver))
		wantSame(t, "receipt of an empty account", t.erase("acct"), store.Receipt{})
		wantSame(t, "receipt of the other account", t.erase("acct2"), t.filled())
		t.wantNothing("acct2")
		backlog := t.backlog("")
		wantSame(t, "Pending", backlog.Pending, 0)
	})

	run("counts the records that Export returns, and removes all of them", func(t *tester) {
		if _, err := t.store.Export(t.Context(), "acct", "", 1); errors.Is(err, errors.ErrUnsupported) {
			t.Skip("store cannot export")
		}
		t.fillAccount("acct")
		t.fillAccount("acct2")
		want := t.exported("acct")
		wantSame(t, "exported records", want, t.filled())
		wantSame(t, "the receipt", t.erase("acct"), want)
		wantSame(t, "exported records after the erasure", t.exported("acct"), store.Receipt{})
		wantSame(t, "exported records of another account", t.exported("acct2"), want)
	})

	run("an erased account can be used like a new one", func(t *tester) {
		for range 2 {
			t.fillAccount("acct")
			wantSame(t, "the receipt", t.erase("acct"), t.filled())
			t.wantNothing("acct")
		}
		t.fillAccount("acct")
		thief := newKey("other", "thief")
		thief.Hash = hashOf("acct", "key of acct")
		t.wantError("CreateKey", t.store.CreateKey(t.Context(), thief, driver.CreateOptions{}), apierr.ErrExists)
		t.erase("acct")
		t.createKeys(thief)
	})

	run("keeps accounts with similar names apart", func(t *tester) {
		for _, account := range oddStrings {
			t.createKeys(newKey(account, "key of "+account))
			t.createWebhooks(newWebhook(account, "webhook of "+account))
			t.enqueue(newEvent(account, "event"), 1)
		}
		for i, account := range oddStrings {
			wantSame(t, "the receipt of "+account, t.erase(account), store.Receipt{Keys: 1, Webhooks: 1, Events: 1, Deliveries: 1})
			backlog := t.backlog("")
			wantSame(t, "Pending", backlog.Pending, len(oddStrings)-i-1)
		}
	})

	run("closes the account until the erasure is complete", func(t *tester) {
		leased := t.fillAccount("acct")
		t.createKeys(expiring("acct", "a", 1), expiring("acct", "b", 2), expiring("acct", "c", 3), expiring("other", "d", 2))
		_, more, err := t.store.EraseAccount(t.Context(), "acct", 1)
		t.must(err)
		if more {
			t.wantClosed("acct")
			t.wantStale(settlement(leased, driver.Deliver))
			t.claimAll(0)
		}
		t.erase("acct")
		t.wantNothing("acct")
		t.claimAll(0)
	})

	run("erases many events among those of other accounts, in steps", func(t *tester) {
		const n = 200
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("other", "c"))
		for i := range n {
			t.enqueue(newEvent("acct", numbered("event", i)), 2)
			t.enqueue(newEvent("other", numbered("event", i)), 1)
			if i%3 == 0 {
				for _, task := range t.claim(9) {
					t.settle(settlement(task, []driver.Effect{driver.Deliver, driver.GiveUp, Postpone}[i%2]))
				}
			} else if i%3 == 1 {
				t.claim(9)
			}
		}
		before := t.list("other", "c", driver.DeliveryQuery{Limit: 2 * n})
		wantSame(t, "the receipt", t.erase("acct"), store.Receipt{Webhooks: 2, Events: n, Deliveries: 2 * n})
		wantSame(t, "the other's deliveries", t.list("other", "c", driver.DeliveryQuery{Limit: 2 * n}), before)
		for i := range n {
			t.enqueue(newEvent("other", numbered("event", i)), 1) // the event is already known
			_, err := t.store.EventDeliveries(t.Context(), "acct", numbered("event", i))
			t.wantError("EventDeliveries", err, apierr.ErrNotFound)
		}
		t.createWebhooks(newWebhook("acct", "a"))
		for i := range n {
			t.enqueue(newEvent("acct", numbered("event", i)), 1) // new
		}
		wantSame(t, "number of deliveries", len(t.list("acct", "a", driver.DeliveryQuery{Limit: 2 * n})), n)
	})

	run("concurrently with all other methods", func(t *tester) {
		other := newWebhook("other", "other")
		t.createWebhooks(other)
		otherEvents := 0
		for round := range 5 {
			t.createWebhooks(newWebhook("acct", numbered("first", round)))
			t.createKeys(newKey("acct", numbered("first", round)))
			inParallel(5, func(who int) {
				for i := range 20 {
					name := numbered(numbered("round", round), i)
					var err error
					switch who {
					case 0:
						err = t.store.CreateKey(t.Context(), newKey("acct", name), driver.CreateOptions{})
					case 1:
						err = t.store.CreateWebhook(t.Context(), newWebhook("acct", name), driver.CreateOptions{})
					case 2:
						_, err = t.store.Enqueue(t.Context(), newEvent("acct", name))
						if _, failed := t.store.Enqueue(t.Context(), newEvent("other", name)); failed != nil {
							t.Errorf("Enqueue for another = %v", failed)
						}
					case 3:
						tasks, claimed := t.worker().Claim(t.Context(), 3)
						if claimed != nil {
							t.Errorf("Claim = %v", claimed)
						}
						for _, task := range tasks {
							if _, settled := t.worker().Settle(t.Context(), []Settlement{settlement(task, driver.Deliver)}); settled != nil {
								t.Errorf("Settle = %v", settled)
							}
						}
					case 4:
						if i == 5 {
							t.erase("acct")
						}
						if i == 6 {
							t.wantNoKeyAt(hashOf("acct", numbered("first", round)))
						}
					}
					if err != nil && !errors.Is(err, auth.ErrErasing) {
						t.Errorf("creation of kind %d: %v, want nil or ErrErasing", who, err)
					}
				}
			})
			otherEvents += 20
			t.erase("acct")
			wantSame(t, "the receipt of nothing", t.erase("acct"), store.Receipt{})
			keys, err := t.store.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 9})
			t.must(err)
			wantSame(t, "ListKeys", keys, []driver.Key{})
			for i := range 20 {
				_, err := t.store.EventDeliveries(t.Context(), "acct", numbered(numbered("round", round), i))
				t.wantError("EventDeliveries", err, apierr.ErrNotFound)
			}
		}
		wantSame(t, "deliveries of the other account", len(t.list("other", "other", driver.DeliveryQuery{Limit: 999})), otherEvents)
	})

	run("concurrent erasures remove each record once", func(t *tester) {
		t.fillAccount("acct")
		inParallel(4, func(int) { t.erase("acct") })
		t.wantNothing("acct")
	})
}

// exported counts the records in an export of the account.
func (t *tester) exported(account string) (n store.Receipt) {
	t.Helper()
	for _, page := range t.exportPages(account, 5) {
		for _, r := range page.Records {
			switch r := r.(type) {
			case *transfer.Key:
				n.Keys++
			case *transfer.Webhook:
				n.Webhooks++
			case *transfer.Event:
				n.Events++
				n.Deliveries += len(r.Deliveries)
			case *transfer.Recovery:
				n.Recoveries++
			case *transfer.Alert:
				n.Alerts++
			case *transfer.DedupKey:
				n.DedupKeys++
			case *transfer.Request:
				n.IdempotencyKeys++
			case *transfer.AuditEntry:
				n.AuditEntries++
			default:
				t.Errorf("Export of an account has a record of kind %q", r.Kind())
			}
		}
	}
	return n
}

// settledOf returns the settled deliveries of an account.
func (t *tester) settledOf(account string) (list []driver.Delivery) {
	t.Helper()
	for _, webhook := range []string{"on of ", "off of "} {
		list = append(list, t.list(account, webhook+account, driver.DeliveryQuery{Limit: 99})...)
	}
	return list
}

// wantClosed checks that an account that is being erased has no keys and accepts no new records.
func (t *tester) wantClosed(account string) {
	t.Helper()
	ctx := t.Context()
	t.wantError("CreateKey", t.store.CreateKey(ctx, newKey(account, "new"), driver.CreateOptions{}), auth.ErrErasing)
	t.wantError("CreateWebhook", t.store.CreateWebhook(ctx, newWebhook(account, "new"), driver.CreateOptions{}), auth.ErrErasing)
	_, err := t.store.Enqueue(ctx, newEvent(account, "new"))
	t.wantError("Enqueue", err, auth.ErrErasing)
	_, err = t.store.EnqueueOnce(ctx, newEvent(account, "new"), []driver.DedupKey{newDedupKey("new")})
	t.wantError("EnqueueOnce", err, auth.ErrErasing)
	_, err = t.store.UpdateAlert(ctx, account, "series 1", keepState("new"))
	t.wantError("UpdateAlert", err, auth.ErrErasing)
	for _, r := range []transfer.Record{
		&transfer.Key{Key: newKey(account, "new")},
		&transfer.Webhook{Webhook: newWebhook(account, "new")},
		&transfer.Request{Account: account, IdempotencyKey: "new", Made: driver.DuplicateRequestError{ID: "new"}, At: some},
		&transfer.Alert{Account: account, Series: "new", State: []byte("new")},
		&transfer.DedupKey{Account: account, DedupKey: newDedupKey("new")},
		&transfer.Event{EncodedEvent: newEvent(account, "new"), PublishedAt: some},
		&transfer.AuditEntry{Entry: audit.Entry{ID: "aud_new", Account: account, Action: audit.KeyCreated}, StoredAt: some},
	} {
		if err := t.store.Import(ctx, []transfer.Record{r}); !errors.Is(err, errors.ErrUnsupported) {
			t.wantError("Import of a "+string(r.Kind()), err, auth.ErrErasing)
		}
	}
	t.wantNoKeyAt(hashOf(account, "key of "+account))
	_, err = t.store.KeyByID(ctx, account, "key of "+account)
	t.wantError("KeyByID", err, apierr.ErrNotFound)
	expire, err := t.store.ExpiringKeys(ctx, driver.ExpiryQuery{Before: some.AddDate(100, 0, 0), Limit: 99})
	t.must(err)
	for _, key := range expire {
		wantSame(t, "ExpiringKeys lists the account that is being erased", key.Account == account, false)
	}
	off, err := t.store.OffWebhooks(ctx, driver.ListQuery{Limit: 99})
	t.must(err)
	held, err := t.store.HeldWebhooks(ctx, driver.ListQuery{Limit: 99})
	t.must(err)
	failing, err := t.store.FailingWebhooks(ctx, some.AddDate(100, 0, 0), driver.ListQuery{Limit: 99})
	t.must(err)
	for _, webhook := range slices.Concat(off, held, failing) {
		wantSame(t, "lists of webhooks include the account that is being erased", webhook.Account == account, false)
	}
}
