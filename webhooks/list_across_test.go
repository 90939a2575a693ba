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

// The iterators over all accounts read page by page, in the order of IDs, and yield an error
// once.
func TestListsOfAllAccounts(t *testing.T) {
	store := memory.New()
	service := newService(t, store, webhooks.Config{MaxPerAccount: -1})
	want := map[string][]string{}
	for i := range 410 { // more than a page of each kind
		kind := []string{"off", "failing", "held", "well"}[i%4]
		if i > 405 {
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
			case "held":
				w.Held = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want[kind] = append([]string{made.ID}, want[kind]...)
	}
	for kind, list := range map[string]func(context.Context) iter.Seq2[webhooks.Webhook, error]{
		"off": service.AllOff, "failing": service.AllFailing, "held": service.AllHeld,
	} {
		var got []string
		for webhook, err := range list(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, webhook.ID)
		}
		if diff := cmp.Diff(want[kind], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		errs := 0
		for _, err := range list(ended) {
			if errs++; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if errs != 1 {
			t.Errorf("%s: %d errors, want 1", kind, errs)
		}
	}
}
