package clients

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

type invoicePaid struct {
	InvoiceID string `json:"invoiceId"`
}

func (invoicePaid) EventType() webhooks.EventType { return "invoices.paid" }

// A host serves the API under a prefix, with its own scope and event type.
type host struct {
	url           string
	document      string // path of the document's file
	admin, narrow string // keys with all scopes, and with only files:read
}

func newHost(t *testing.T) *host {
	t.Helper()
	api, err := storageapi.NewHandler(storageapi.Config{
		Store: memory.New(), Logger: slog.New(slog.DiscardHandler), Prefix: "/api/v1",
		Scopes: []scopes.Declaration{{Scope: "invoices:read", Description: "List invoices"}},
		Webhooks: webhooks.Config{Events: []webhooks.EventDeclaration{
			{Type: "invoices.paid", Description: "Invoice paid", Scope: "invoices:read", Example: invoicePaid{"inv_1"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.Handler(api))
	t.Cleanup(func() {
		server.Close()
		_ = api.Close()
	})
	h := &host{url: server.URL, document: filepath.Join(t.TempDir(), "openapi.json")}
	if err := os.WriteFile(h.document, api.OpenAPI(), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, set := range map[*string]scopes.Set{&h.admin: api.Keys.Scopes().All(), &h.narrow: scopes.Of(scopes.FilesRead)} {
		_, token, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "a key", Scopes: set})
		if err != nil {
			t.Fatal(err)
		}
		*value = token.Reveal()
	}
	return h
}

// run runs a command in a directory, and fails the test with its output if it fails.
func run(t *testing.T, dir string, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(name), err, out)
	}
}
