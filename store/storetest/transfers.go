package storetest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// RunTransfer tests Accounts, Export and Import between stores of two backends, or of one backend.
// from and to must return empty stores, which the suite closes. [Run] calls RunTransfer with the
// tested backend on both sides.
func RunTransfer(t *testing.T, from, to func(t *testing.T) store.Store) {
	t.Helper()
	run := func(name string, test func(src, dst *tester)) {
		t.Run(name, func(t *testing.T) {
			src, dst := from(t), to(t)
			defer closeStore(t, src)
			defer closeStore(t, dst)
			for _, s := range []store.Store{src, dst} {
				if _, err := s.Export(t.Context(), "", "", 1); errors.Is(err, errors.ErrUnsupported) {
					t.Skip("store cannot export")
				}
			}
			test(&tester{t, src}, &tester{t, dst})
		})
	}
	transferWhole(run)
	transferParts(run)
	transferRefused(run)
	transferAuditEntries(run)
	transferReported(run)
}

// A transferRunner runs a test with two new stores.
type transferRunner func(name string, test func(src, dst *tester))

// exportPages exports the account in pages of limit records and returns all pages.
func (t *tester) exportPages(account string, limit int) (pages []transfer.Page) {
	t.Helper()
	for page, err := range transfer.Pages(t.Context(), t.store, account, limit) {
		t.must(err)
		wantSame(t, "Unreadable", page.Unreadable, nil)
		if len(page.Records) > limit {
			t.Fatalf("page of at most %d records has %d", limit, len(page.Records))
		}
		pages = append(pages, page)
	}
	return pages
}

// moveTo exports the account and imports it into dst, in pages of limit records.
func (t *tester) moveTo(dst *tester, account string, limit int) {
	t.Helper()
	for _, page := range t.exportPages(account, limit) {
		dst.must(dst.store.Import(t.Context(), page.Records))
	}
}

func (t *tester) summary(account string) transfer.Summary {
	t.Helper()
	sums, err := transfer.Summarize(t.Context(), t.store, account)
	t.must(err)
	return sums
}

// everyKind stores records of every kind and in every state, in the accounts "acct", "other" and
// "alone".
func (t *tester) everyKind() {
	t.Helper()
	t.must(t.store.CreateKey(t.Context(), rotatedKey("acct", "key"), request("requested", 7)))
	t.createKeys(newKey("acct", "unused"), rotatedKey("other", "key"), newKey(long("account", 128), long("id", 128)))
	t.must(t.store.RecordKeyUse(t.Context(), []driver.KeyUse{
		{Account: "acct", ID: "key", Hash: hashOf("acct", "key"), At: some.Add(time.Minute)},
		{Account: "acct", ID: "key", Hash: hashOf("acct", "key", "previous"), At: some.Add(time.Second)},
		{Account: "acct", ID: "key", Hash: hashOf("acct", "key", "before"), At: some.Add(time.Hour)},
	}))
	full := newWebhook("acct", "full")
	full.URL, full.Active, full.OffReason, full.Events, full.PastEvents = long("url", 4096), false, driver.OffGone, full.Events[:1], full.Events[1:]
	full.Threshold, full.ProvenAt, full.FailingSince, full.FailingEvent, full.FailedAgain = math.MaxInt64, some, some.Add(1), "event", true
	full.WarnedAt, full.PreviousSecret, full.PreviousSecretExpiresAt = some.Add(time.Hour), signing.NewSecret(), some.Add(time.Minute)
	full.Headers, full.PausedUntil, full.SecretsVersion, full.EventScopes = someHeaders(), some, 3, []scopes.Scope{scopes.FilesRead, "teams:read"}
	full.Signatures = []signing.Scheme{signing.V1, signing.V1a}
	must := func(w driver.Webhook, options driver.CreateOptions) {
		t.must(t.store.CreateWebhook(t.Context(), w, options))
	}
	must(full, request("requested", 8))
	held := newWebhook("holding", "held")
	held.Held = true
	t.createWebhooks(held)
	t.enqueue(newEvent("holding", "held"), 1)
	must(newWebhook("other", "others"), request("requested", 9))

	// These events are published before the webhooks used below exist, and are purged step by step.
	t.createWebhooks(newWebhook("acct", "webhook"))
	t.inEachState("acct", "webhook")
	t.setActive("other", "others", false)
	t.settleEvent(newEvent("acct", "forgotten"), 1, driver.GiveUp)
	first := t.border()
	t.settleEvent(newEvent("acct", "forgotten body"), 1, driver.Deliver)
	second := t.border()
	t.purge(driver.Purge{Payloads: second, EventIDs: first})
	t.setActive("other", "others", true)

	t.settleEvent(newEvent("acct", "forgotten"), 1, driver.Deliver) // reuses the ID
	t.createWebhooks(newWebhook("acct", "deleted"))
	t.settleEvent(newEvent("acct", "left"), 2, driver.Deliver)
	t.enqueue(newEvent("acct", "dropped"), 2)
	for _, task := range t.claimAll(2) {
		t.settle(settlement(task, driver.GiveUp))
	}
	t.must(t.store.Redeliver(t.Context(), "acct", "deleted", "dropped", audit.Entry{}))
	t.must(t.store.DeleteWebhook(t.Context(), "acct", "deleted", nil, audit.Entry{}))
	t.enqueue(newEvent("nobody", "unheard"), 0)
	t.enqueue(newEvent(long("account", 128), long("event", 64)), 0)

	for i := range 12 { // more deliveries than a store packs together, with attempts of every length
		event := newEvent("other", numbered("event", i))
		event.Body = []byte(`{"data":"` + long("body", 100*i) + "\"}\xff\x00")
		t.enqueue(event, 1)
	}
	for i, task := range t.claimAll(12) {
		end := settlement(task, []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry, Postpone}[i%4])
		if end.Effect == driver.Retry {
			end.RetryAfter = time.Duration(i/4*60) * time.Minute
		}
		end.Attempt.Response, end.Attempt.Duration, end.Attempt.Status = long("response", 90*i), time.Duration(math.MaxInt64).Truncate(time.Microsecond), math.MaxInt32
		if end.Effect == driver.Deliver {
			end.Attempt.Class, end.Attempt.Error = "", ""
		}
		t.settle(end)
	}
	for range 2 { // redelivers the dead delivery, which succeeds, and then redelivers it again
		t.must(t.store.Redeliver(t.Context(), "other", "others", numbered("event", 5), audit.Entry{}))
		again := t.claim(1, "others")
		end := settlement(again[0], driver.Deliver)
		end.Attempt.Class, end.Attempt.Error = "", ""
		t.settle(end)
	}
	t.must(t.store.Redeliver(t.Context(), "other", "others", numbered("event", 5), audit.Entry{}))
	t.must(t.store.Redeliver(t.Context(), "other", "others", numbered("event", 9), audit.Entry{}))

	t.createWebhooks(newWebhook("acct", "recovering"), newWebhook("acct", "recovered"))
	for i := range 6 {
		t.setActive("acct", "recovering", false)
		t.setActive("acct", "recovered", false)
		t.enqueue(newEvent("acct", numbered("missed", i)), 1)
	}
	t.setActive("acct", "recovering", true)
	done, under := newRecovery("acct", "recovered", "done", driver.Delivered), newRecovery("acct", "recovering", "under way", driver.Skipped)
	t.createRecoveries(done, newRecovery("acct", "recovering", "z, the one before", driver.Delivered))
	t.advance(1000)
	t.createRecoveries(under)
	for range 3 {
		_, err := t.store.AdvanceRecovery(t.Context(), 2)
		t.must(err)
	}

	t.updateAlert("acct", "series", keepState(long("state", 5000)))
	t.updateAlert("acct", "series 1", keepState("\x00\xff"))
	t.updateAlert("other", "series", func(step *driver.AlertStep) error {
		step.Deferrable = true
		return keepState("deferred")(step)
	})
	t.updateAlert("alone", "another series", keepState("alone"))
	t.updateWebhook("acct", "webhook", func(*driver.Webhook) {}) // makes the account's balance alert due
	t.enqueueOnce(newEvent("alone", "once"), 0, newDedupKey("a"), newDedupKey(long("b", 1024)), driver.DedupKey{Key: "a", Until: some.Add(time.Millisecond)})
	t.updateScan("\x00scan\xff")
}

// everything returns the results of all read methods for the records of everyKind. Calling it does
// not change these results.
func (t *tester) everything() map[string]any {
	t.Helper()
	seen := make(map[string]any)
	note := func(what string, got any, err error) {
		if err != nil {
			got = err.Error()
		}
		seen[what] = got
	}
	accounts, err := t.store.Accounts(t.Context(), "", 99)
	note("accounts", accounts, err)
	for _, account := range append(accounts, "nobody") {
		keys, err := t.store.ListKeys(t.Context(), account, driver.ListQuery{Limit: 99})
		note("keys of "+account, keys, err)
		for _, key := range keys {
			byHash, err := t.store.KeyByHash(t.Context(), key.Hash)
			note("key of the hash of "+key.ID+" of "+account, byHash, err)
			if !key.Previous.IsZero() {
				byHash, err = t.store.KeyByHash(t.Context(), key.Previous)
				note("key of the previous hash of "+key.ID+" of "+account, byHash, err)
			}
		}
		hooks, err := t.store.ListWebhooks(t.Context(), account, driver.ListQuery{Limit: 99})
		note("webhooks of "+account, hooks, err)
		for _, w := range hooks {
			for name, query := range map[string]driver.DeliveryQuery{
				"all": {}, "failed": {Failed: true}, "dead": {States: []driver.DeliveryState{driver.Dead, driver.Skipped}},
				"pending": {States: []driver.DeliveryState{driver.Pending}}, "to come": {From: some}, "to then": {To: some},
			} {
				note(name+" deliveries of "+w.ID, roughly(t.list(account, w.ID, query)), nil)
			}
			backlog, err := t.worker().Backlog(t.Context(), w.ID)
			note("pending of "+w.ID, backlog.Pending, err)
		}
		for _, series := range []string{"series", "another series", "series 1"} {
			note("alert of "+series+" of "+account, t.alertAsItIs(account, series), nil)
		}
		unseen, err := t.store.UnseenKeys(t.Context(), account, []driver.DedupKey{
			newDedupKey("a"), newDedupKey(long("b", 1024)), newDedupKey("c"), {Key: "a", Until: some.Add(time.Millisecond)}, {Key: "a", Until: some.Add(time.Second)},
		})
		note("unseen keys of "+account, unseen, err)
		for _, id := range []string{"delivered", "dead", "skipped", "pending", "forgotten", "forgotten body", "left", "dropped", "unheard", "none", long("event", 64)} {
			list, err := t.store.EventDeliveries(t.Context(), account, id)
			note("deliveries of "+id+" of "+account, roughly(list), err)
		}
		for i := range 12 {
			for _, prefix := range []string{"event", "missed"} {
				list, err := t.store.EventDeliveries(t.Context(), account, numbered(prefix, i))
				note("deliveries of "+numbered(prefix, i)+" of "+account, roughly(list), err)
			}
		}
	}
	due, err := t.store.DueAlerts(t.Context(), 99)
	slices.SortFunc(due, func(a, b driver.AlertSeries) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name))
	})
	note("due alerts", due, err)
	failing, err := t.store.FailingWebhooks(t.Context(), some.AddDate(1, 0, 0), driver.ListQuery{Limit: 99})
	note("failing webhooks", failing, err)
	heldOnes, err := t.store.HeldWebhooks(t.Context(), driver.ListQuery{Limit: 99})
	note("held webhooks", heldOnes, err)
	for _, id := range []string{"done", "under way", "z, the one before"} {
		recovery, err := t.store.RecoveryByID(t.Context(), "acct", id)
		note("recovery "+id, recovery, err)
	}
	note("scan", t.scanState(), nil)
	again := request("requested", 0)
	note("request for a key", duplicateOf(t.store.CreateKey(t.Context(), newKey("acct", "again"), again)), nil)
	for _, account := range []string{"acct", "other"} {
		err := t.store.CreateWebhook(t.Context(), newWebhook(account, "again"), again)
		note("request for a webhook of "+account, duplicateOf(err), nil)
	}
	return seen
}

var errAsItIs = errors.New("unchanged")

// alertAsItIs returns the state of an alert, and leaves it due if it was due.
func (t *tester) alertAsItIs(account string, series string) (state string) {
	t.Helper()
	_, err := t.store.UpdateAlert(t.Context(), account, series, func(step *driver.AlertStep) error {
		state = string(step.State)
		return errAsItIs
	})
	t.wantError("UpdateAlert", err, errAsItIs)
	return state
}

// roughly returns the deliveries with due times truncated to minutes, because the clocks of two
// stores may differ by some seconds.
func roughly(list []driver.Delivery) []driver.Delivery {
	list = slices.Clone(list)
	for i := range list {
		if at := &list[i].NextAttemptAt; !at.IsZero() {
			*at = time.Unix(0, 0).UTC().Add(time.Until(*at).Round(5 * time.Minute))
		}
	}
	return list
}

// wantAlike checks that two stores have the same contents, and that both behave alike afterwards.
func (t *tester) wantAlike(other *tester) {
	t.Helper()
	wantSame(t, "contents of the stores", other.everything(), t.everything())
	if err := t.summary("").Compare(other.summary("")); err != nil {
		t.Error(err)
	}
	seen := make([]map[string]any, 2)
	for i, s := range []*tester{t, other} {
		seen[i] = make(map[string]any)
		claimed := func(name string) {
			for _, task := range s.claim(999) {
				of := name + " of " + task.Webhook.ID
				tasks, _ := seen[i][of].([]Task)
				webhook := *task.Webhook
				task.Webhook = &webhook
				seen[i][of] = append(tasks, task)
			}
		}
		s.advance(1)
		claimed("claimed")
		s.setActive("acct", "recovered", true)
		claimed("claimed after the webhook was enabled")
		seen[i]["recovery"] = s.recovery("acct", "under way")
		s.must(s.store.Redeliver(s.Context(), "other", "others", numbered("event", 4), audit.Entry{}))
		s.must(s.store.DeleteWebhook(s.Context(), "other", "others", nil, audit.Entry{}))
		for n := range 12 { // redelivered deliveries return to their previous settled state
			list, err := s.store.EventDeliveries(s.Context(), "other", numbered("event", n))
			s.must(err)
			seen[i]["left of "+numbered("event", n)] = roughly(list)
		}
		for _, id := range []string{"delivered", "forgotten body", "forgotten", "new"} {
			n, err := s.store.Enqueue(s.Context(), newEvent("acct", id))
			s.must(err)
			seen[i]["again "+id] = n
		}
		seen[i]["newest"] = eventIDs(s.list("acct", "webhook", driver.DeliveryQuery{}))
		border := s.border()
		s.purge(driver.Purge{Payloads: border, Attempts: border, EventIDs: border, DedupKeys: some.AddDate(1, 0, 0)})
		list, err := s.store.EventDeliveries(s.Context(), "acct", "left")
		seen[i]["purged"] = []any{roughly(list), errors.Is(err, apierr.ErrNotFound)}
		s.must(s.store.DeleteKey(s.Context(), "acct", "key", nil, audit.Entry{}))
		s.createKeys(rotatedKey("acct", "key"))
	}
	for of, tasks := range seen[0] { // only some stores remember which deliveries are First
		if _, claimed := tasks.([]Task); claimed {
			for i := range seen {
				list, _ := seen[i][of].([]Task)
				slices.SortStableFunc(list, func(a, b Task) int { return slices.Compare([]byte(a.Event.ID), []byte(b.Event.ID)) })
			}
		}
	}
	wantSame(t, "behavior of the stores", seen[1], seen[0])
}

func transferWhole(run transferRunner) {
	run("the target has the contents and the behavior of the source", func(src, dst *tester) {
		src.everyKind()
		src.moveTo(dst, "", 1000)
		src.wantAlike(dst)
	})

	run("pages of any size, each imported twice", func(src, dst *tester) {
		src.everyKind()
		sums := src.summary("")
		for _, limit := range []int{1, 7} {
			for _, page := range src.exportPages("", limit) {
				for range 2 {
					dst.must(dst.store.Import(dst.Context(), page.Records))
				}
			}
			dst.must(sums.Compare(dst.summary("")))
		}
		src.wantAlike(dst)
	})

	run("interrupted after any page, and resumed from the previous page or the first", func(src, dst *tester) {
		src.everyKind()
		pages := src.exportPages("", 9)
		for i := 0; i < len(pages); {
			ctx, cancel := context.WithCancel(dst.Context())
			time.AfterFunc(rand.N(2*time.Millisecond), cancel)
			err := dst.store.Import(ctx, pages[i].Records)
			cancel()
			switch {
			case err == nil:
				i++
			case !errors.Is(err, context.Canceled):
				dst.Fatal(err)
			case i%3 == 0:
				i = 0
				dst.must(dst.store.Import(dst.Context(), pages[0].Records))
				for j := 1; j <= len(pages)/2; j++ {
					dst.must(dst.store.Import(dst.Context(), pages[j].Records))
				}
			default:
				i = max(0, i-1)
				dst.must(dst.store.Import(dst.Context(), pages[i].Records))
			}
		}
		src.wantAlike(dst)
	})

	run("to the target and back", func(src, dst *tester) {
		src.everyKind()
		src.moveTo(dst, "", 50)
		sums := dst.summary("")
		src.must(src.summary("").Compare(sums))
		src.moveTo(dst, "", 1000) // repeats the import
		dst.must(sums.Compare(dst.summary("")))
		dst.moveTo(src, "", 1000) // the source already has all records
		dst.must(sums.Compare(src.summary("")))
	})

	run("values at their limits", func(src, dst *tester) {
		id := func(name string) string { return long(name, 128) }
		key := rotatedKey(id("a"), id("k"))
		key.Name, key.ExpiresAt, key.CreatedAt = long("name", 4096), time.UnixMilli(math.MaxInt32*1000).UTC(), time.UnixMilli(-1).UTC()
		src.createKeys(key)
		for _, odd := range oddStrings {
			src.createKeys(newKey(odd, odd), rotatedKey(odd, odd+odd))
			src.createWebhooks(newWebhook(odd, odd))
			src.enqueue(newEvent(odd, odd), 1)
		}
		webhook := newWebhook(id("a"), id("w"))
		webhook.URL, webhook.Threshold, webhook.Secret = long("url", 4096), 0, signing.Secret{}
		src.createWebhooks(webhook)
		empty := newEvent(id("a"), id("e"))
		empty.Body, empty.Timestamp = []byte{}, time.Time{}
		src.enqueue(empty, 1)
		src.updateAlert(id("a"), "series 1", keepState(strings.Repeat(long("state", 1024), 1024)))
		src.moveTo(dst, "", 3)
		src.must(src.summary("").Compare(dst.summary("")))
		wantSame(dst, "KeyByID", dst.key(id("a"), id("k")), key)
		wantSame(dst, "WebhookByID", dst.webhook(id("a"), id("w")), webhook)
		for _, odd := range oddStrings {
			wantSame(dst, "KeyByID", dst.key(odd, odd+odd), rotatedKey(odd, odd+odd))
			wantSame(dst, "WebhookByID", dst.webhook(odd, odd), src.webhook(odd, odd))
		}
		tasks := make(map[string]driver.EncodedEvent)
		for _, task := range dst.claimAll(len(oddStrings) + 1) {
			tasks[task.Event.Account] = task.Event
		}
		for _, odd := range oddStrings {
			wantSame(dst, "Task.Event", tasks[odd], newEvent(odd, odd))
		}
		wantSame(dst, "Task.Event", tasks[id("a")], empty)
	})
}

// transferAuditEntries tests the transfer of audit entries.
func transferAuditEntries(run transferRunner) {
	run("audit entries keep their order, are delivered once, and are listed", func(src, dst *tester) {
		entry := func(account, id string, pending bool) audit.Entry {
			return audit.Entry{
				ID: id, At: some, Account: account, Action: audit.WebhookFailing,
				Target:  audit.Target{Kind: audit.TargetWebhook, ID: "webhook", Name: "https://example.com", Hint: "of a target"},
				Actor:   audit.Actor{Kind: audit.ActorPerson, ID: "someone", Name: "name", Hint: "hint"},
				Changed: []string{"name", "scopes"}, Turned: "on", RequestID: "request", ClientAddress: "192.0.2.1",
				Object: "object", Reason: "gone", Since: some.Add(time.Minute), Until: some.Add(time.Hour), Pending: pending,
			}
		}
		for i, account := range []string{"acct", "other", "acct", "", "acct", "other"} {
			// The order of storage differs from the order of IDs.
			added, err := src.store.AddAuditEntries(src.Context(), []audit.Entry{entry(account, numbered("ntc", 9-i), i%3 > 0)})
			src.must(err)
			wantSame(src, "added", added, 1)
		}
		allPending := func(t *tester) (list []audit.Entry, numbers []uint64) {
			for _, n := range t.allPending() {
				list, numbers = append(list, n.Entry), append(numbers, n.Number)
			}
			return list, numbers
		}
		_, numbers := allPending(src)
		src.must(src.store.TakeAuditEntries(src.Context(), numbers[:1]))
		want, _ := allPending(src)
		sums := src.summary("")
		for _, limit := range []int{1, 4} {
			src.moveTo(dst, "", limit)
			dst.must(sums.Compare(dst.summary("")))
			got, _ := allPending(dst)
			wantSame(dst, "pending audit entries", got, want)
		}
		for _, account := range []string{"acct", "other", ""} {
			listed := func(t *tester) audit.Page {
				page, err := t.store.ListAuditEntries(t.Context(), account, audit.Query{Limit: 99})
				t.must(err)
				return page
			}
			wantSame(dst, "audit entries of "+account, listed(dst), listed(src))
		}
		wantSame(dst, "audit entries of one account", src.summary("acct")[transfer.KindAuditEntry].Count, 3)
		added, err := dst.store.AddAuditEntries(dst.Context(), []audit.Entry{entry("acct", numbered("ntc", 9), true), entry("acct", "new", true)})
		dst.must(err)
		wantSame(dst, "added", added, 1)
		got, _ := allPending(dst)
		wantSame(dst, "last pending audit entry", got[len(got)-1], entry("acct", "new", true))
	})
}

// transferParts tests exports of single accounts and imports into stores that are not empty.
func transferParts(run transferRunner) {
	run("Accounts returns accounts in ascending order of bytes, in pages of any size", func(src, _ *tester) {
		var want []string
		for i, odd := range oddStrings {
			switch want = append(want, odd); i % 3 {
			case 0:
				src.createKeys(newKey(odd, odd))
			case 1:
				src.createWebhooks(newWebhook(odd, odd))
			case 2:
				src.updateAlert(odd, "series", keepState("state"))
			}
		}
		src.createKeys(newKey("a", "another"))
		src.createWebhooks(newWebhook("a", "another"))
		slices.Sort(want)
		for _, limit := range []int{1, 4, 999} {
			var got []string
			for after := ""; ; after = got[len(got)-1] {
				page, err := src.store.Accounts(src.Context(), after, limit)
				src.must(err)
				if got = append(got, page...); len(page) == 0 {
					break
				}
			}
			wantSame(src, "Accounts", got, want)
		}
	})

	run("limits times in the future to an hour from now, and does not delay later events", func(_, dst *tester) {
		dst.createWebhooks(newWebhook("acct", "webhook"))
		future := time.Date(2046, 1, 1, 0, 0, 0, 0, time.UTC)
		var records []transfer.Record
		for i := range 3 {
			records = append(records, &transfer.Event{
				EncodedEvent: newEvent("acct", numbered("future", i)), PublishedAt: future.Add(time.Duration(i) * time.Hour), Matched: 1,
				Deliveries: []transfer.Delivery{{WebhookID: "webhook", State: driver.Pending, AsPublished: true}},
			})
		}
		records = append(records, &transfer.Request{Account: "acct", IdempotencyKey: "request", At: future, Made: driver.DuplicateRequestError{ID: "key"}})
		dst.must(dst.store.Import(dst.Context(), records))
		dst.must(dst.store.Import(dst.Context(), records)) // has no effect
		dst.enqueue(newEvent("acct", "later"), 1)
		page, err := dst.store.ListEvents(dst.Context(), "acct", driver.EventQuery{OldestFirst: true, Limit: 9})
		dst.must(err)
		var ids []string
		limit := time.Now().Add(time.Hour + time.Minute)
		for _, e := range page.Events {
			if ids = append(ids, e.ID); e.PublishedAt.After(limit) {
				dst.Errorf("%s published at %v, want at most an hour from now", e.ID, e.PublishedAt)
			}
		}
		wantSame(dst, "events", ids, []string{numbered("future", 0), numbered("future", 1), numbered("future", 2), "later"})
		wantSame(dst, "tasks", len(dst.claimAll(4)), 4)
		for _, page := range dst.exportPages("acct", 99) {
			for _, record := range page.Records {
				if r, ok := record.(*transfer.Request); ok && r.At.After(limit) {
					dst.Errorf("request made at %v, want at most an hour from now", r.At)
				}
			}
		}
	})

	run("one account after the other, into a non-empty store", func(src, dst *tester) {
		src.everyKind()
		dst.createKeys(newKey("resident", "key"))
		dst.createWebhooks(newWebhook("resident", "resident"))
		dst.settleEvent(newEvent("resident", "settled"), 1, driver.GiveUp)
		dst.enqueue(newEvent("resident", "pending"), 1)
		resident := dst.summary("resident")
		whole := src.summary("")
		accounts, err := src.store.Accounts(src.Context(), "", 99)
		src.must(err)
		for _, account := range accounts {
			src.moveTo(dst, account, 5)
			src.must(src.summary(account).Compare(dst.summary(account)))
		}
		wantSame(dst, "kinds", slices.Sorted(maps.Keys(dst.summary("acct"))), slices.Sorted(maps.Keys(src.summary("acct"))))
		wantSame(dst, "file scans", dst.summary("")[transfer.KindScan].Count, 0)
		wantSame(dst, "keys", dst.summary("")[transfer.KindKey].Count, whole[transfer.KindKey].Count+1)
		dst.must(resident.Compare(dst.summary("resident")))
		dst.enqueue(newEvent("resident", "later"), 1)
		wantSame(dst, "events", eventIDs(dst.list("resident", "resident", driver.DeliveryQuery{})), []string{"later", "pending", "settled"})
	})

	run("events of different times stay separate, also in a store with later events", func(src, dst *tester) {
		src.createWebhooks(newWebhook("acct", "webhook"))
		src.settleEvent(newEvent("acct", "old"), 1, driver.Deliver)
		middle := src.border()
		src.settleEvent(newEvent("acct", "older"), 1, driver.Deliver)
		published := func(t *tester, id string) time.Time { return t.delivery("acct", id).PublishedAt }
		time.Sleep(2 * time.Millisecond)
		dst.createWebhooks(newWebhook("resident", "resident"))
		for i := range 9 {
			dst.settleEvent(newEvent("resident", numbered("event", i)), 1, driver.Deliver)
		}
		src.moveTo(dst, "acct", 5)
		end := dst.border()
		dst.settleEvent(newEvent("acct", "new"), 1, driver.Deliver)
		for _, id := range []string{"old", "older"} {
			wantSame(dst, "PublishedAt", published(dst, id), published(src, id))
		}
		for _, c := range []struct {
			query driver.DeliveryQuery
			want  []string
		}{
			{driver.DeliveryQuery{}, []string{"new", "older", "old"}},
			{driver.DeliveryQuery{From: middle}, []string{"new", "older"}},
			{driver.DeliveryQuery{To: middle}, []string{"old"}},
			{driver.DeliveryQuery{To: end}, []string{"older", "old"}},
			{driver.DeliveryQuery{From: middle, To: end}, []string{"older"}},
			{driver.DeliveryQuery{From: end}, []string{"new"}},
		} {
			wantSame(dst, "events", eventIDs(dst.list("acct", "webhook", c.query)), c.want)
		}
		wantSame(dst, "events", len(dst.list("resident", "resident", driver.DeliveryQuery{From: middle})), 9)
		dst.purge(driver.Purge{Payloads: middle, Attempts: middle, EventIDs: middle})
		wantSame(dst, "events", len(dst.list("resident", "resident", driver.DeliveryQuery{})), 9)
		dst.must(dst.store.Redeliver(dst.Context(), "resident", "resident", numbered("event", 0), audit.Entry{}))
		dst.purge(driver.Purge{Payloads: end, Attempts: end, EventIDs: end})
		wantSame(dst, "events", eventIDs(dst.list("acct", "webhook", driver.DeliveryQuery{})), []string{"new"})
	})

	run("waiting deliveries keep their due times, and redelivered ones come first", func(src, dst *tester) {
		webhook := newWebhook("acct", "webhook")
		event := func(id string, d transfer.Delivery) transfer.Record {
			d.WebhookID, d.State = "webhook", driver.Pending
			return &transfer.Event{EncodedEvent: newEvent("acct", id), PublishedAt: src.now().UTC().Truncate(time.Millisecond), Matched: 1, Deliveries: []transfer.Delivery{d}}
		}
		dst.claimAll(0) // starts Deliver, so that the import is reported
		dst.must(dst.store.Import(dst.Context(), []transfer.Record{
			&transfer.Webhook{Webhook: webhook},
			event("recovered", transfer.Delivery{Recovered: true, Wait: -time.Hour}),
			event("later", transfer.Delivery{Wait: time.Second, Made: 2, Before: 1, Attempts: []driver.Attempt{{Number: 1, StartedAt: some}, {Number: 2, StartedAt: some, Class: driver.ClassDNS}}}),
			event("due", transfer.Delivery{Wait: -time.Minute}),
			event("fresh", transfer.Delivery{AsPublished: true}),
			event("longest due", transfer.Delivery{Wait: -time.Hour}),
			event("first", transfer.Delivery{First: true, Wait: -time.Millisecond}),
			event("much later", transfer.Delivery{Wait: time.Hour, Made: 1, Attempts: []driver.Attempt{{Number: 1, StartedAt: some, Class: driver.ClassDNS}}}),
		}))
		var got []string
		tasks := dst.await(6)
		for _, task := range tasks {
			got = append(got, task.Event.ID)
		}
		wantSame(dst, "claimed", got, []string{"first", "longest due", "due", "fresh", "recovered", "later"})
		wantSame(dst, "Attempt", tasks[5].Attempt, 3)
		wantSame(dst, "Before", tasks[5].Before, 1)
		wantSame(dst, "failed", eventIDs(dst.list("acct", "webhook", driver.DeliveryQuery{Failed: true})), []string{"much later", "later"})
	})
}

// transferRefused tests that Import and Export reject invalid calls.
func transferRefused(run transferRunner) {
	run("a record that conflicts with another is rejected, with all others of the call", func(src, dst *tester) {
		dst.createKeys(newKey("acct", "key"))
		dst.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "another"))
		dst.createRecoveries(newRecovery("acct", "webhook", "recovery", driver.Dead))
		before := dst.summary("")
		key := func(id string, hash driver.Hash) *transfer.Key {
			return &transfer.Key{Key: driver.Key{Account: "other", ID: id, Hash: hash, CreatedAt: some}}
		}
		previous := key("previous", hashOf("own"))
		previous.Previous = hashOf("acct", "key")
		pending := &transfer.Event{EncodedEvent: newEvent("other", "event"), PublishedAt: some, Deliveries: []transfer.Delivery{{WebhookID: "webhook", State: driver.Pending}}}
		fine := &transfer.Webhook{Webhook: newWebhook("other", "fine")}
		for name, c := range map[string]struct {
			record transfer.Record
			want   error
		}{
			"hash of another key":                {key("key", hashOf("acct", "key")), transfer.ErrConflict},
			"previous hash of another key":       {previous, transfer.ErrConflict},
			"webhook ID of another account":      {&transfer.Webhook{Webhook: newWebhook("other", "webhook")}, transfer.ErrConflict},
			"recovery ID of another account":     {&transfer.Recovery{Recovery: newRecovery("other", "fine", "recovery", driver.Dead)}, transfer.ErrConflict},
			"second recovery of a webhook":       {&transfer.Recovery{Recovery: newRecovery("acct", "webhook", "second", driver.Dead)}, transfer.ErrConflict},
			"pending for another account":        {pending, transfer.ErrRecord},
			"record without an ID":               {&transfer.Key{}, transfer.ErrRecord},
			"delivered event without an attempt": {&transfer.Event{EncodedEvent: newEvent("acct", "e"), PublishedAt: some, Deliveries: []transfer.Delivery{{WebhookID: "webhook", State: driver.Delivered}}}, transfer.ErrRecord},
		} {
			dst.wantError(name, dst.store.Import(dst.Context(), []transfer.Record{fine, c.record}), c.want)
			dst.must(before.Compare(dst.summary("")))
		}
		dst.wantError("two keys with the same hash", dst.store.Import(dst.Context(), []transfer.Record{key("one", hashOf("same")), key("two", hashOf("same"))}), transfer.ErrConflict)
		dst.must(before.Compare(dst.summary("")))
		dst.must(dst.store.Import(dst.Context(), []transfer.Record{fine, key("one", hashOf("same")), key("one", hashOf("same"))}))
		wantSame(dst, "keys", dst.summary("other")[transfer.KindKey].Count, 1)
	})

	run("an invalid position is rejected", func(src, _ *tester) {
		src.everyKind()
		for _, after := range []string{"nonsense", "key", "key.", "key.!", "secret.YQ", "."} {
			_, err := src.store.Export(src.Context(), "", after, 9)
			src.wantError("Export after "+after, err, transfer.ErrPosition)
		}
	})

	run("fails with an ended context and on a closed store", func(src, dst *tester) {
		src.createKeys(newKey("acct", "key"))
		records := src.exportPages("", 9)[0].Records
		every := func(ctx context.Context, s store.Store, want error) {
			_, err := s.Accounts(ctx, "", 9)
			src.wantError("Accounts", err, want)
			_, err = s.Export(ctx, "", "", 9)
			src.wantError("Export", err, want)
			src.wantError("Import", s.Import(ctx, records), want)
		}
		ctx, cancel := context.WithCancel(src.Context())
		cancel()
		every(ctx, dst.store, context.Canceled)
		wantSame(dst, "imported records", dst.summary(""), nil)
		dst.must(dst.store.Close())
		every(dst.Context(), dst.store, store.ErrClosed)
	})
}

func transferReported(run transferRunner) {
	run("Import reports pending deliveries", func(src, dst *tester) {
		if _, ok := dst.store.(driver.Deliveries); !ok {
			dst.Skip("store does not implement driver.Deliveries")
		}
		held := newWebhook("acct", "held")
		held.Held = true
		src.createWebhooks(newWebhook("acct", "webhook"), held)
		src.enqueueMany("acct", 5, 2)
		f := dst.deliver()
		defer f.end()
		reports := f.during(func() { src.moveTo(dst, "acct", 3) })
		for _, r := range f.added(reports, 10) {
			want := driver.Ready
			if r.Ref.WebhookID == "held" {
				want = driver.Passive
			}
			f.wantState("an imported delivery", r.Ref, want)
			wantSame(dst, "Webhook.Version", r.Webhook.Version, 1)
		}
	})
}
