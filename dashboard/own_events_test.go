package dashboard_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

type invoicePaid struct {
	Invoice string `json:"invoice"`
}

func (invoicePaid) EventType() webhooks.EventType { return "invoices.paid" }

// TestOwnEvents checks the description of a host's event type, and that a webhook stays subscribed
// to the type after it is no longer declared.
func TestOwnEvents(t *testing.T) {
	store := memory.New()
	s := newSite(t, storageapi.Config{Store: store, Webhooks: webhooks.Config{Events: []webhooks.EventDeclaration{
		{Type: "invoices.paid", Description: "Invoice paid", Scope: "account:read", Example: invoicePaid{"inv_1"}},
	}}})
	form := s.get("webhooks/new").says("Transaction limit reached transactions.limit_reached Invoice paid invoices.paid").
		form("url", "https://example.com/", "events", "invoices.paid")
	s.post("webhooks/new", form).want(200)
	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: alice, Data: invoicePaid{"inv_1"}}); err != nil {
		t.Fatal(err)
	}
	page, err := s.api.Webhooks.List(t.Context(), alice, webhooks.WebhookQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	one := "webhooks/" + page.Webhooks[0].ID
	s.get(one).says("Invoice paid")

	s = newSite(t, storageapi.Config{Store: store})
	s.get(one).says("invoices.paid (no longer sent)")
	s.get("webhooks/new").hides("invoices.paid")
	edit := s.get(one + "/edit").says("invoices.paid (no longer sent)")
	if !strings.Contains(edit.body, `value="invoices.paid" checked`) {
		t.Error("what it is subscribed to is not marked in the form")
	}
	form = edit.form("url", "https://example.com/elsewhere", "events", "invoices.paid")
	s.post(one+"/edit", form).want(303)
	kept, err := s.api.Webhooks.Get(t.Context(), alice, page.Webhooks[0].ID)
	if err != nil || kept.URL != "https://example.com/elsewhere" || len(kept.Events) != 1 || kept.Events[0] != "invoices.paid" {
		t.Errorf("it is %+v, %v", kept, err)
	}
}

// TestAllEvents subscribes to all events in the form. Then the host declares another type. Its
// events are sent only after the form is saved again.
func TestAllEvents(t *testing.T) {
	store := memory.New()
	s := newSite(t, storageapi.Config{Store: store})
	s.post("webhooks/new", s.get("webhooks/new").form("url", "https://example.com/", "events", "*", "events", "balance.low")).want(200)
	s.get("webhooks").says("All events, also ones added later")
	page, err := s.api.Webhooks.List(t.Context(), alice, webhooks.WebhookQuery{Limit: 1})
	if err != nil || len(page.Webhooks) != 1 || !slices.Equal(page.Webhooks[0].Events, []webhooks.EventType{"*"}) {
		t.Fatalf("webhooks %+v, %v", page, err)
	}
	one := "webhooks/" + page.Webhooks[0].ID
	s.get(one).says("All events, also ones added later").hides("Not sent yet")

	s = newSite(t, storageapi.Config{
		Store: store, Scopes: []scopes.Declaration{{Scope: "invoices:read", Description: "Read invoices"}},
		Webhooks: webhooks.Config{Events: []webhooks.EventDeclaration{
			{Type: "invoices.paid", Description: "Invoice paid", Scope: "invoices:read", Example: invoicePaid{"inv_1"}},
		}},
	})
	s.get("events?type=invoices.paid").says("No webhook is subscribed to this type.")
	s.get(one).says("Not sent yet: Invoice paid.")
	s.get(one + "/deliveries").hides("All events, also ones")
	edit := s.get(one + "/edit")
	if !strings.Contains(edit.body, `value="*" checked`) {
		t.Error("all events are not checked in the form")
	}
	s.post(one+"/edit", edit.form("url", "https://example.com/", "events", "*")).want(303)
	s.get(one).hides("Not sent yet")
	s.get("audit-log").says("scopes of all events")
}
