package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// The lists of all accounts go from page to page, in the order of ids, and tell of an error
// once.
func TestListsOfAllAccounts(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{MaxPerAccount: -1})
	want := map[string][]string{}
	for i := range 210 { // more than a page of each
		kind := []string{"off", "failing", "well"}[i%3]
		if i > 205 {
			kind = "well"
		}
		made, err := service.Create(t.Context(), fmt.Sprint("acct_", i%7), webhooks.CreateParams{URL: anyURL, Events: onBalance})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.UpdateWebhook(t.Context(), made.Account, made.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
			switch kind {
			case "off":
				w.Active, w.OffReason, w.FailedAgain, w.FailingSince = false, webhooks.OffFailing, true, noon
			case "failing":
				w.FailedAgain, w.FailingSince = true, noon
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want[kind] = append([]string{made.ID}, want[kind]...)
	}
	for kind, list := range map[string]struct {
		all  func(context.Context) iter.Seq2[webhooks.Webhook, error]
		page func(context.Context, webhooks.Page) (webhooks.WebhookPage, error)
	}{"off": {service.AllOff, service.OffWebhooks}, "failing": {service.AllFailing, service.FailingWebhooks}} {
		var got []string
		for webhook, err := range list.all(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, webhook.ID)
		}
		if diff := cmp.Diff(want[kind], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		page, err := list.page(t.Context(), webhooks.Page{After: got[0], Limit: 3})
		if err != nil || len(page.Webhooks) != 3 || page.Webhooks[0].ID != got[1] || page.Next != got[3] {
			t.Errorf("%s: a page is %+v, %v", kind, page, err)
		}
		var invalid *webhooks.ValidationError
		if _, err := list.page(t.Context(), webhooks.Page{}); !errors.As(err, &invalid) || invalid.Field != "limit" {
			t.Errorf("%s without a limit: %v", kind, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		errs := 0
		for _, err := range list.all(ended) {
			if errs++; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if errs != 1 {
			t.Errorf("%s: %d errors, want 1", kind, errs)
		}
	}
}
