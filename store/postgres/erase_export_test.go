package postgres_test

import (
	"bytes"
	"encoding/json"
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
	"github.com/storageapi/storageapi/webhooks"
)

// The receipt of Erase has the same counts as ExportAccount. After the erasure, the account's
// export contains only the audit entry of the erasure. After a second erasure, it consists of only
// its first and last line.
func TestExportAccount_ThenErase_CountsMatch(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: open(t, inSchema(t))})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	defer func() { _ = api.Close() }()
	_, _, err = api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified(), IdempotencyKey: "request"})
	must(err)
	for _, url := range []string{"https://a.example", "https://b.example"} {
		_, err := api.Webhooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: url, Events: []driver.EventType{alerts.TypeBalanceLow, alerts.TypeFilesExpiring}})
		must(err)
	}
	for range 3 {
		must(api.Webhooks.Publish(t.Context(), webhooks.Event{Account: "acct", Data: alerts.BalanceLow{}}))
	}
	must(api.Alerts.ReportBalance(t.Context(), "acct", 1))
	must(api.Alerts.ReportFiles(t.Context(), "acct", []alerts.ExpiringFile{{ID: "file", ExpiresAt: time.Now().Add(time.Hour)}}))
	counted := exportedCounts(t, api, "acct")
	erased, err := api.Erase(t.Context(), "acct")
	must(err)
	if diff := cmp.Diff(counted, erased); diff != "" || erased.DedupKeys == 0 || erased.Alerts == 0 || erased.Deliveries < 6 {
		t.Errorf("the receipt %+v (-export +receipt):\n%s", erased, diff)
	}
	for _, want := range []store.Receipt{{AuditEntries: 1}, {}} {
		if diff := cmp.Diff(want, exportedCounts(t, api, "acct")); diff != "" {
			t.Errorf("after Erase (-want +export):\n%s", diff)
		}
		_, err = api.Erase(t.Context(), "acct")
		must(err)
	}
}

// exportedCounts exports the account and returns the counts of the export's last line, and the
// number of deliveries in its other lines.
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
