package webhooks_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/webhooks"
)

// owedTo returns the IDs of the webhooks that have a delivery of an event.
func owedTo(tb testing.TB, s *webhooks.WebhookService, event string) []string {
	tb.Helper()
	ids := []string{}
	for _, delivery := range deliveries(tb, s, event) {
		if delivery.State == webhooks.Skipped {
			continue
		}
		if delivery.State != webhooks.Pending || delivery.EventID != event || len(delivery.Attempts) != 0 {
			tb.Errorf("before anything runs: %+v", delivery)
		}
		ids = append(ids, delivery.WebhookID)
	}
	return ids
}

// An event goes to the webhooks of its account that are active and subscribed to its type when it
// is published.
func TestPublishMatchesWebhooks(t *testing.T) {
	service := newClocked(t)
	create := func(account string, events ...webhooks.EventType) string {
		webhook, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		return webhook.ID
	}
	first := create(account, alerts.TypeBalanceLow)
	second := create(account, alerts.TypeFilesExpiring, alerts.TypeBalanceLow)
	create(account, alerts.TypeFilesExpiring)
	create("acct_2", alerts.TypeBalanceLow)
	off := create(account, alerts.TypeBalanceLow)
	if _, err := service.Update(t.Context(), account, off, webhooks.UpdateParams{Active: new(false)}); err != nil {
		t.Fatal(err)
	}

	event := publish(t, service)
	late := create(account, alerts.TypeBalanceLow)
	if _, err := service.Update(t.Context(), account, off, webhooks.UpdateParams{Active: new(true)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{first, second}, owedTo(t, service, event)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if skipped, err := service.Delivery(t.Context(), account, off, event); err != nil || skipped.State != webhooks.Skipped {
		t.Errorf("to the one that was off: %+v, %v", skipped, err)
	}
	if diff := cmp.Diff([]string{first, second, off, late}, owedTo(t, service, publish(t, service))); diff != "" {
		t.Errorf("the next event (-want +got):\n%s", diff)
	}
}

func TestPublish_NoSubscribers_MakesNoDelivery(t *testing.T) {
	service := newClocked(t)
	if got := owedTo(t, service, publish(t, service)); len(got) != 0 {
		t.Errorf("owed to %v", got)
	}
	if _, err := service.EventDeliveries(t.Context(), account, "evt_none"); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("an event that was never published: %v", err)
	}
}

// Publishing an ID again changes nothing, even with other data or new subscribers.
func TestPublish_Repeated_ChangesNothing(t *testing.T) {
	service := newClocked(t)
	webhook := subscribe(t, service, anyURL)
	event := webhooks.Event{ID: "order-42", Account: account, Data: lowBalance}
	for range 3 {
		if err := service.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		event.Data = alerts.BalanceLow{Balance: 1}
		subscribe(t, service, anyURL)
	}
	event.Data = file(alerts.ExpiringFile{ID: "1", ExpiresAt: noon})
	if err := service.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{webhook.ID}, owedTo(t, service, "order-42")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublish_SameEventConcurrently_IsStoredOnce(t *testing.T) {
	service := newClocked(t)
	subscribe(t, service, anyURL)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				publish(t, service)
				if err := service.Publish(t.Context(), webhooks.Event{ID: "the-same", Account: account, Data: lowBalance}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := owedTo(t, service, "the-same"); len(got) != 1 {
		t.Errorf("the same event is owed %d times", len(got))
	}
}

func TestNewEventIDsAreInOrder(t *testing.T) {
	service := newClocked(t)
	var ids []string
	for range 100 {
		ids = append(ids, service.NewEventID())
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 100 {
		t.Errorf("%v", ids)
	}
}

// A canceled Publish stores nothing.
func TestPublish_Canceled_StoresNothing(t *testing.T) {
	service := newClocked(t)
	subscribe(t, service, anyURL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := service.Publish(ctx, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := service.EventDeliveries(t.Context(), account, "evt_1"); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("it left: %v", err)
	}
}

// Encode does everything that Publish does before it stores the event.
func TestEncode(t *testing.T) {
	service := newClocked(t)
	subscribe(t, service, "https://example.com/")
	encoded, err := service.Encode(t.Context(), webhooks.Event{Account: account, Data: lowBalance})
	if err != nil || encoded.ID == "" || !encoded.Timestamp.Equal(noon) || encoded.Type != alerts.TypeBalanceLow || len(encoded.Body) == 0 {
		t.Errorf("Encode = %+v, %v", encoded, err)
	}
	if _, err := service.EventDeliveries(t.Context(), account, encoded.ID); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("EventDeliveries of what was only sealed = %v, want ErrNotFound", err)
	}
	var invalid *apierr.ValidationError
	if _, err := service.Encode(t.Context(), webhooks.Event{Account: account}); !errors.As(err, &invalid) {
		t.Errorf("Encode of an event without Data = %v, want a ValidationError", err)
	}
}
