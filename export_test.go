package storageapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// ExportAccount must write the whole account as JSON lines, without secrets, hashes or data of
// other accounts.
func TestExportAccount(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	var secrets []string
	for _, account := range []string{"acct", "other"} {
		key, token, err := api.Keys.Create(t.Context(), account, apikeys.CreateParams{Name: account + " key", Scopes: scopes.Specified(), IdempotencyKey: "request"})
		if err != nil {
			t.Fatal(err)
		}
		rotated, second, err := api.Keys.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: 3600e9})
		if err != nil {
			t.Fatal(err)
		}
		hook, err := api.Webhooks.Create(t.Context(), account, webhooks.CreateParams{URL: "https://" + account + ".example.com", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, token.Reveal(), second.Reveal(), hook.Secret.Reveal(), strings.TrimPrefix(hook.Secret.Reveal(), "whsec_"))
		for _, hash := range []driver.Hash{rotated.Hash, rotated.Previous} {
			secrets = append(secrets, string(hash.Sum[:8]))
		}
		if err := api.Webhooks.Publish(t.Context(), webhooks.Event{ID: account + "-event", Account: account, Data: alerts.BalanceLow{Balance: 9223372036854775807}}); err != nil {
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
	if diff := cmp.Diff(map[string]float64{"account": 1, "key": 1, "webhook": 1, "idempotencyKey": 1, "event": 1, "auditEntry": 3, "end": 1}, kinds); diff != "" {
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

// The counts of ExportAccount must equal the receipt of Erase. After Erase the account has only the
// audit entry of the erasure. After a second Erase it has nothing, and the export has two lines.
func TestExportAccount_ThenErase_CountsMatch(t *testing.T) {
	for name, config := range map[string]storageapi.Config{
		"file": {Path: filepath.Join(t.TempDir(), "storage.db")}, "memory": {Store: memory.New()},
	} {
		t.Run(name, func(t *testing.T) {
			api, err := storageapi.NewHandler(config)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = api.Close() }()
			if _, _, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified(), IdempotencyKey: "request"}); err != nil {
				t.Fatal(err)
			}
			for _, url := range []string{"https://a.example", "https://b.example"} {
				if _, err := api.Webhooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: url, Events: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeFilesExpiring}}); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if err := api.Webhooks.Publish(t.Context(), webhooks.Event{Account: "acct", Data: alerts.BalanceLow{}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := api.Alerts.ReportBalance(t.Context(), "acct", 1); err != nil {
				t.Fatal(err)
			}
			if err := api.Alerts.ReportFiles(t.Context(), "acct", []alerts.ExpiringFile{{ID: "file", ExpiresAt: time.Now().Add(time.Hour)}}); err != nil {
				t.Fatal(err)
			}
			counted := exportedCounts(t, api, "acct")
			erased, err := api.Erase(t.Context(), "acct")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(counted, erased); diff != "" || erased.DedupKeys == 0 || erased.Alerts == 0 || erased.Deliveries < 6 {
				t.Errorf("the receipt %+v (-export +receipt):\n%s", erased, diff)
			}
			if diff := cmp.Diff(store.Receipt{AuditEntries: 1}, exportedCounts(t, api, "acct")); diff != "" {
				t.Errorf("after Erase (-want +export):\n%s", diff)
			}
			if _, err := api.Erase(t.Context(), "acct"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(store.Receipt{}, exportedCounts(t, api, "acct")); diff != "" {
				t.Errorf("after another Erase (-want +export):\n%s", diff)
			}
		})
	}
}

// exportedCounts returns the counts in the last line of an export.
func exportedCounts(t *testing.T, api *storageapi.Handler, account string) (n store.Receipt) {
	t.Helper()
	var written bytes.Buffer
	if err := api.ExportAccount(t.Context(), account, &written); err != nil {
		t.Fatal(err)
	}
	lines := 0
	var last struct {
		Kind       string
		Lines      map[string]int
		Deliveries []any
	}
	for text := range strings.Lines(written.String()) {
		lines++
		last.Deliveries = nil
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			t.Fatal(err)
		}
		n.Deliveries += len(last.Deliveries)
	}
	total := 2
	for kind, count := range map[string]*int{
		"key": &n.Keys, "webhook": &n.Webhooks, "event": &n.Events, "recovery": &n.Recoveries, "alert": &n.Alerts,
		"toldOnce": &n.DedupKeys, "idempotencyKey": &n.IdempotencyKeys, "auditEntry": &n.AuditEntries,
	} {
		*count = last.Lines[kind]
		total += *count
	}
	if last.Kind != "end" || lines != total {
		t.Errorf("%d lines, the last of which is of kind %q and counts %v", lines, last.Kind, last.Lines)
	}
	return n
}
