package storetest

import (
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

func reportedWebhooks(run runner) {
	test := fed(run)

	// wantReported calls do and checks that the last report of the webhook has its current state.
	wantReported := func(f *feed, do func()) {
		f.Helper()
		var last *driver.Webhook
		for _, r := range f.during(do) {
			if r.Method == "Webhook" && r.Ref.WebhookID == "webhook" && (last == nil || r.Webhook.Version > last.Version) {
				last = r.Webhook
			}
		}
		if last == nil {
			f.Fatal("change not reported")
		}
		want := f.webhook("acct", "webhook")
		wantSame(f.tester, "Webhook", *last, want)
		wantSame(f.tester, "Webhook.Version", last.Version, want.Version)
	}

	test("UpdateWebhook", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "other"))
		f.published(newEvent("acct", "event"), 2)
		for name, change := range map[string]func(*driver.Webhook){
			"turned off":  func(w *driver.Webhook) { w.Active, w.OffReason, w.OffAt = false, driver.OffGone, some },
			"turned on":   func(w *driver.Webhook) { w.Active, w.OffReason = true, "" },
			"put on hold": func(w *driver.Webhook) { w.Held = true },
			"released":    func(w *driver.Webhook) { w.Held = false },
			"another URL": func(w *driver.Webhook) { w.URL = "https://example.org/" },
			"proven":      func(w *driver.Webhook) { w.ProvenAt = some },
		} {
			wantReported(f, func() {
				changed := f.updateWebhook("acct", "webhook", change)
				wantSame(f.tester, "stored webhook after the change: "+name, f.webhook("acct", "webhook"), changed)
			})
		}
	})

	test("reports a change of health by Settle", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		ref := f.only("acct", "event")
		wantReported(f, func() {
			f.wantSettled([]driver.AttemptResult{result(ref, 1, driver.GiveUp)}, []driver.HealthChange{{
				Account: "acct", WebhookID: "webhook", Version: 1,
				Health: driver.WebhookHealth{OffReason: driver.OffGone, OffAt: some, FailingSince: some, FailingEvent: "event"},
			}}, driver.Settled{})
		})
		wantSame(f.tester, "Version", f.webhook("acct", "webhook").Version, 2)
	})

	test("reports the last of concurrent changes last", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"))
		wantReported(f, func() {
			inParallel(4, func(i int) {
				for j := range 20 {
					_, err := f.store.UpdateWebhook(f.Context(), "acct", "webhook", func(w *driver.Webhook, _ *audit.Entry) error {
						w.URL, w.Active = numbered(numbered("url", i), j), j%2 == 0
						return nil
					})
					f.wantError("UpdateWebhook", err, nil)
				}
			})
		})
	})

	test("DeleteWebhook: Forget", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("acct", "other"))
		f.published(newEvent("acct", "event"), 2)
		f.wantForget(driver.Scope{WebhookID: "webhook"}, func() {
			f.must(f.store.DeleteWebhook(f.Context(), "acct", "webhook", nil, audit.Entry{}))
		})
	})

	test("first step of an erasure: Forget", func(f *feed) {
		f.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
		for i := range 5 {
			f.only("acct", numbered("event", i))
		}
		f.wantForget(driver.Scope{Account: "acct"}, func() {
			_, _, err := f.store.EraseAccount(f.Context(), "acct", 2)
			f.must(err)
		})
		f.erase("acct")
		f.createWebhooks(newWebhook("acct", "webhook")) // as in a new account
		f.only("acct", "event")
	})
}

// wantForget calls do and checks that the store reports a Forget of the scope and nothing else.
func (f *feed) wantForget(want driver.Scope, do func()) {
	f.Helper()
	found := false
	for _, r := range f.during(do) {
		found = found || r.Scope == want
		switch {
		case r.Method == "Add" || r.Method == "Webhook" && r.Ref.WebhookID == want.WebhookID:
			f.Errorf("unexpected report %v", r)
		case r.Method == "Forget" && r.Scope != want && (want.Account == "" || r.Scope.WebhookID == ""):
			f.Errorf("Forget(%+v), want %+v", r.Scope, want)
		}
	}
	if !found {
		f.Errorf("Forget(%+v) not reported", want)
	}
}
