package storageapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// What ExportAccount writes is all of the account, whole lines of JSON, without secrets, hashes
// or anything of another account.
func TestExportAccount(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	var secrets []string
	for _, account := range []string{"acct", "other"} {
		key, token, err := api.Keys.Create(t.Context(), account, apikeys.CreateParams{Name: account + " key", Scopes: scopes.All(), IdempotencyKey: "request"})
		if err != nil {
			t.Fatal(err)
		}
		rotated, second, err := api.Keys.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: 3600e9})
		if err != nil {
			t.Fatal(err)
		}
		hook, err := api.Webhooks.Create(t.Context(), account, webhooks.CreateParams{URL: "https://" + account + ".example.com", Events: []webhooks.EventType{webhooks.TypeBalanceLow}})
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, token.Reveal(), second.Reveal(), hook.Secret.Reveal(), strings.TrimPrefix(hook.Secret.Reveal(), "whsec_"))
		for _, hash := range []apikeys.Hash{rotated.Hash, rotated.Previous} {
			secrets = append(secrets, string(hash.Sum[:8]))
		}
		if err := api.Webhooks.Publish(t.Context(), webhooks.Event{ID: account + "-event", Account: account, Data: webhooks.BalanceLow{Balance: 9223372036854775807}}); err != nil {
			t.Fatal(err)
		}
	}
	body, err := api.Webhooks.Body(t.Context(), "acct", "acct-event")
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := api.ExportAccount(t.Context(), "acct", &written); err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(secrets, "other") {
		if strings.Contains(written.String(), secret) {
			t.Error("the export holds a secret, a hash or something of another account")
		}
	}
	kinds := map[string]float64{}
	var last map[string]any
	for text := range strings.Lines(written.String()) {
		last = nil
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		kinds[last["kind"].(string)]++
		if last["kind"] == "event" && (last["body"] != string(body) || len(last["deliveries"].([]any)) != 1) {
			t.Errorf("event: %v, want the body %q and one delivery", last, body)
		}
	}
	if diff := cmp.Diff(map[string]float64{"account": 1, "key": 1, "webhook": 1, "idempotencyKey": 1, "event": 1, "notice": 3, "end": 1}, kinds); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	counts := last["lines"].(map[string]any)
	for kind, n := range kinds {
		if kind != "account" && kind != "end" && counts[kind] != n {
			t.Errorf("the last line counts %v of %s, want %v", counts[kind], kind, n)
		}
	}

	failing := errors.New("full")
	if err := api.ExportAccount(t.Context(), "acct", failingWriter{failing}); !errors.Is(err, failing) {
		t.Errorf("an export to what cannot be written = %v", err)
	}
	if err := api.ExportAccount(t.Context(), "", &written); err == nil {
		t.Error("an export of no account: no error")
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
