package storageapi_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// Config.Observe must receive each activity of all services exactly once, including commits of the
// file. If a service has an Observer of its own, both must receive its activity. Close must log
// pending refusals.
func TestObserve(t *testing.T) {
	var mu sync.Mutex
	told := make(map[string]int)
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told[what]++
	}
	var log bytes.Buffer
	config := storageapi.Config{
		Path: filepath.Join(t.TempDir(), "storage.db"), Logger: slog.New(slog.NewTextHandler(&log, nil)), LogRefusals: true,
		ClientAddress: func(*http.Request) string { return "192.0.2.7" },
		Observe: observe.Observer{
			Authenticated: func(_ context.Context, a observe.Authentication) { note(string(a.Outcome)) },
			Published:     func(context.Context, observe.Publication) { note("published") },
			Changed:       func(n audit.Entry) { note(string(n.Action)) },
			Committed: func(c observe.Commit) {
				if c.Err != nil || c.Steps == 0 {
					t.Errorf("told %+v", c)
				}
				mu.Lock()
				defer mu.Unlock()
				told["committed"] = 1
			},
		},
		Webhooks: webhooks.Config{Observe: observe.Observer{Published: func(context.Context, observe.Publication) { note("published, by the part's own") }}},
	}
	h, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := h.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "one", Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{token.Reveal(), "guess"} {
		r := httptest.NewRequest(http.MethodGet, "/v2/notifications/webhooks", nil) // requires account:read
		r.Header.Set("Api-Key", value)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if err := h.Webhooks.Publish(t.Context(), webhooks.Event{Account: "acct_1", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"scope_missing": 1, "malformed": 1, "key.created": 1, "published": 1, "published, by the part's own": 1, "committed": 1,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if !strings.Contains(log.String(), "source=192.0.2.7 requests=1 malformed=1\n") || strings.Contains(log.String(), "guess") {
		t.Errorf("logged %s", log.String())
	}
}
