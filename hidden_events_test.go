package storageapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// A webhook that was imported with a subscription to a hidden event keeps the subscription, but
// receives only its other events.
func TestHideEvents_ImportedWebhook_ReceivesOtherEventsOnly(t *testing.T) {
	open := func(s store.Store, config alerts.Config) *storageapi.Handler {
		api, err := storageapi.NewHandler(storageapi.Config{Store: s, Alerts: config})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Close() })
		return api
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	source, target := memory.New(), memory.New()
	before, err := open(source, alerts.Config{}).Webhooks.Create(t.Context(), "acct_1", webhooks.CreateParams{
		URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeBandwidthLimitReached}, Threshold: 5,
	})
	must(err)
	_, err = transfer.Copy(t.Context(), target, source, transfer.CopyOptions{})
	must(err)

	api := open(target, alerts.Config{HideEvents: []webhooks.EventType{alerts.TypeBalanceLow}, DefaultBalanceThreshold: 5})
	must(api.Alerts.ReportBalance(t.Context(), "acct_1", 1))
	must(api.Alerts.ReportBandwidth(t.Context(), "acct_1", 10, 10, "2026-11"))
	threshold, moved := uint64(9), "https://example.com/moved" // without HideEvents, the higher threshold would send balance.low at once
	after, err := api.Webhooks.Update(t.Context(), "acct_1", before.ID, webhooks.UpdateParams{URL: &moved, Events: before.Events, Threshold: &threshold})
	must(err)
	if diff := cmp.Diff(before.Events, after.Events); diff != "" {
		t.Errorf("Events (-before +after):\n%s", diff)
	}
	must(api.Alerts.ReportBalance(t.Context(), "acct_1", 100))
	must(api.Alerts.ReportBalance(t.Context(), "acct_1", 1))

	var got []webhooks.EventType
	for d, err := range api.Webhooks.AllDeliveries(t.Context(), "acct_1", before.ID, webhooks.DeliveryQuery{}) {
		must(err)
		got = append(got, d.Type)
	}
	if diff := cmp.Diff([]webhooks.EventType{alerts.TypeBandwidthLimitReached}, got); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}
