package contract

import (
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// An invoicePaid is the payload of an event type that the host declares.
type invoicePaid struct {
	InvoiceID string  `json:"invoiceId"`
	Total     float64 `json:"total"`
}

func (invoicePaid) EventType() webhooks.EventType { return "invoices.paid" }

// own configures a host with its own scopes, event types, names and limits.
func own(config *storageapi.Config) {
	config.Prefix = "/api/v1"
	config.Scopes = []scopes.Declaration{
		{Scope: "invoices:read", Description: "List invoices"}, {Scope: "invoices:write", Description: "Change invoices"},
	}
	config.Keys.Prefix, config.Keys.MaxPerAccount = "acme", 2000
	config.Webhooks.SignatureHeader = "X-Acme-Signature"
	config.Webhooks.Events = []webhooks.EventDeclaration{
		{Type: "invoices.paid", Description: "Invoice paid", Scope: "invoices:read", Example: invoicePaid{"inv_1", 12.5}},
	}
}

// loadOwn returns the document of a host that own has configured.
func loadOwn(t testing.TB) *document {
	t.Helper()
	config := storageapi.Config{Store: memory.New()}
	own(&config)
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	d := parse(t, api.OpenAPI())
	d.prefix, d.configure = config.Prefix, own
	return d
}

// events returns one event of each type that the host has.
func (h *host) events() []webhooks.Data {
	list := everyEvent()
	if h.configure != nil {
		list = append(list, invoicePaid{"inv_2", 0.1})
	}
	return list
}

// testOwnScopes checks that the document lists exactly the scopes of the host. A key that lacks the
// scopes declared by the host must not be able to grant them or to subscribe to events that require
// them.
func (h *host) testOwnScopes(t *testing.T) {
	h.do(t, "createKey", 201, body(`{"name":"a","scopes":["invoices:write","files:read"]}`))
	if done := h.do(t, "createKey", 400, body(`{"name":"a","scopes":["invoices:delete"]}`)); done.invalid == nil {
		t.Error("by the document there is a scope that there is not")
	}
	_, specified := h.key("a", scopes.Specified())
	h.do(t, "createKey", 403, body(`{"name":"a","scopes":["invoices:read"]}`), as(specified))
	h.do(t, "createWebhook", 403, body(`{"url":"https://example.com/","events":["invoices.paid"]}`), as(specified))
}
