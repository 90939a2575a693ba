package postgres_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// Errors distinguish a database that is down from other failures, so that callers can retry.
func TestStore_DatabaseDown_ReturnsErrUnavailable(t *testing.T) {
	pool, server := migrated(t)
	s, err := postgres.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.ListAuditEntries(t.Context(), "acct", audit.Query{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 100 { // enough to use up all idle connections
		if _, err := s.ListAuditEntries(t.Context(), "acct", audit.Query{Limit: 1}); !errors.Is(err, auth.ErrUnavailable) {
			t.Fatalf("ListAuditEntries: %v, want %v", err, auth.ErrUnavailable)
		}
	}
	if _, err := s.AddAuditEntries(t.Context(), []audit.Entry{{ID: "aud_1", Account: "acct"}}); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("AddAuditEntries: %v, want %v", err, auth.ErrUnavailable)
	}
}

// A request gets a 503 with Retry-After in two cases: the server cancels the write, so that it has
// no effect, or the server ends the connection, so that the write may have taken effect.
func TestHTTP_WriteInterrupted_503SaysWhetherChangeIsPossible(t *testing.T) {
	schema := inSchema(t)
	config := pool(t).Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = "2s"
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := postgres.New(t.Context(), p, schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	api, err := storageapi.NewHandler(storageapi.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "admin", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	post := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/v2/api-keys", strings.NewReader(`{"name":"a","scopes":["files:read"]}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", token.Reveal())
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	if w := post(); w.Code != 201 {
		t.Fatalf("POST: %d %s, want 201", w.Code, w.Body)
	}
	host, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Rollback(t.Context()) }()
	if _, err := host.Exec(t.Context(), inSchemaOf(schema, "lock table SCHEMA.keys in share row exclusive mode")); err != nil {
		t.Fatal(err)
	}
	want := func(w *httptest.ResponseRecorder, says string) {
		t.Helper()
		if w.Code != 503 || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), says) {
			t.Errorf("POST: %d, Retry-After %q, %s, want 503, 5 and %q", w.Code, w.Header().Get("Retry-After"), w.Body, says)
		}
	}
	want(post(), "Nothing was changed.")

	answered := make(chan *httptest.ResponseRecorder)
	go func() { answered <- post() }()
	for ended := false; !ended; {
		err := pool(t).QueryRow(t.Context(), `select coalesce(bool_or(pg_terminate_backend(pid)), false) from pg_stat_activity
			where wait_event_type = 'Lock' and position($1 in query) > 0`, quoted(postgres.SchemaOf(schema))).Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
	}
	want(<-answered, "may have been made.")
}

// If the server cancels a batch, its events are not stored, and each publisher gets an error that
// allows a retry.
func TestPublish_BatchCanceled_ReturnsErrUnavailable(t *testing.T) {
	schema := inSchema(t)
	config := pool(t).Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = "500ms"
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := postgres.New(t.Context(), p, schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	host, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Rollback(t.Context()) }()
	if _, err := host.Exec(t.Context(), inSchemaOf(schema, "lock table SCHEMA.event_log in share row exclusive mode")); err != nil {
		t.Fatal(err)
	}
	var publishers sync.WaitGroup
	for i := range 20 {
		publishers.Go(func() {
			_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint("event", i), Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte("{}")})
			if !errors.Is(err, auth.ErrUnavailable) || errors.Is(err, auth.ErrInterrupted) {
				t.Errorf("Enqueue: %v, want %v", err, auth.ErrUnavailable)
			}
		})
	}
	publishers.Wait()
}
