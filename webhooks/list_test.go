package webhooks_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// All reads page by page, can be stopped early, and yields an error once.
func TestAll(t *testing.T) {
	service := newService(t, memory.New(), webhooks.Config{MaxPerAccount: -1})
	var want []string
	for range 101 { // more than a page
		key := subscribe(t, service, anyURL)
		want = append([]string{key.ID}, want...)
	}
	var got []string
	for key, err := range service.All(t.Context(), account, webhooks.WebhookQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key := range service.All(t.Context(), account, webhooks.WebhookQuery{}) {
		if key.ID != want[0] {
			t.Errorf("begins with %s, want %s", key.ID, want[0])
		}
		break
	}
	for range service.All(t.Context(), "acct_2", webhooks.WebhookQuery{}) {
		t.Error("another account has some")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for key, err := range service.All(ended, account, webhooks.WebhookQuery{}) {
		if errs++; !errors.Is(err, context.Canceled) || key.ID != "" {
			t.Errorf("got %+v, %v", key, err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1", errs)
	}
}

// AllDeliveries begins after query.After, and applies the query's filters.
func TestAllDeliveries(t *testing.T) {
	service := newClocked(t)
	webhook := subscribe(t, service, anyURL)
	var want []string
	for range 5 {
		want = append([]string{publish(t, service)}, want...)
	}
	read := func(query webhooks.DeliveryQuery) (got []string) {
		for delivery, err := range service.AllDeliveries(t.Context(), account, webhook.ID, query) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, delivery.EventID)
		}
		return got
	}
	if diff := cmp.Diff(want, read(webhooks.DeliveryQuery{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, read(webhooks.DeliveryQuery{Limit: 2})); diff != "" {
		t.Errorf("two at a time (-want +got):\n%s", diff)
	}
	first, err := service.ListDeliveries(t.Context(), account, webhook.ID, webhooks.DeliveryQuery{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[2:], read(webhooks.DeliveryQuery{Limit: 2, After: first.Next})); diff != "" {
		t.Errorf("after the first page (-want +got):\n%s", diff)
	}
	if got := read(webhooks.DeliveryQuery{States: []webhooks.DeliveryState{webhooks.Dead}}); got != nil {
		t.Errorf("dead: %q", got)
	}
	for _, err := range service.AllDeliveries(t.Context(), account, "wh_none", webhooks.DeliveryQuery{}) {
		if !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("of no webhook: %v", err)
		}
	}
}
