package storageapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// Erase must invalidate keys, reset the account's request counts and abort running attempts.
func TestHandlerErase(t *testing.T) {
	for name, config := range map[string]storageapi.Config{
		"file": {Path: filepath.Join(t.TempDir(), "storage.db")}, "memory": {Store: memory.New()},
	} {
		t.Run(name, func(t *testing.T) {
			config.RateLimit = auth.RateLimit{PerSecond: 0.001, Burst: 1, PerAccount: 1}
			api, err := storageapi.NewHandler(config)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = api.Close() }()
			asked, ended := make(chan struct{}), make(chan struct{}, 1)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				asked <- struct{}{}
				<-r.Context().Done()
				ended <- struct{}{}
			}))
			defer receiver.Close()
			testhook.SetNetwork(api.Webhooks, testhook.Network{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, receiver.Listener.Addr().String())
			}})
			ctx, cancel := context.WithCancel(t.Context())
			running := make(chan error)
			go func() { running <- api.Run(ctx) }()
			defer func() { cancel(); <-running }()

			request := func(token apikeys.Token) int {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v2/api-keys", nil)
				r.Header.Set(auth.HeaderName, token.Reveal())
				api.ServeHTTP(w, r)
				return w.Code
			}
			for round := range 2 { // an erased account must behave like a new one
				_, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified()})
				if err != nil {
					t.Fatal(err)
				}
				if status := request(token); status != http.StatusOK {
					t.Fatalf("status %d, want 200", status)
				}
				if _, err := api.Webhooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com", Events: []webhooks.EventType{alerts.TypeBalanceLow}}); err != nil {
					t.Fatal(err)
				}
				if err := api.Webhooks.Publish(t.Context(), webhooks.Event{Account: "acct", Data: alerts.BalanceLow{}}); err != nil {
					t.Fatal(err)
				}
				<-asked
				erased, err := api.Erase(t.Context(), "acct")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(store.Receipt{Keys: 1, Webhooks: 1, Events: 1, Deliveries: 1, AuditEntries: 2 + round}, erased); diff != "" {
					t.Errorf("receipt (-want +got):\n%s", diff)
				}
				<-ended
				if status := request(token); status != http.StatusUnauthorized {
					t.Errorf("status %d after Erase, want 401", status)
				}
			}
			auditLog, err := api.Audit.List(t.Context(), "acct", audit.Query{Limit: 9})
			if err != nil || len(auditLog.Entries) != 1 || auditLog.Entries[0].Action != audit.AccountErased {
				t.Errorf("after Erase the audit log is %+v, %v, want AccountErased alone", auditLog, err)
			}
			if _, err := api.Erase(t.Context(), ""); err == nil {
				t.Error("Erase of no account: no error")
			}
			cut, end := context.WithCancel(t.Context())
			end()
			if _, err := api.Erase(cut, "acct"); !errors.Is(err, context.Canceled) {
				t.Errorf("Erase = %v, want the context's error", err)
			}
		})
	}
}
