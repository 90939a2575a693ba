package postgres_test

import (
	"errors"
	"testing"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/postgres"
)

// A database that is down is told from one that fails otherwise: what asks can try again.
func TestStore_DatabaseIsDown_ErrorsAreUnavailable(t *testing.T) {
	pool, server := migrated(t)
	s, err := postgres.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.ListNotices(t.Context(), "acct", notices.Query{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 100 { // one for each connection that was kept
		if _, err := s.ListNotices(t.Context(), "acct", notices.Query{Limit: 1}); !errors.Is(err, auth.ErrUnavailable) {
			t.Fatalf("ListNotices: %v, want %v", err, auth.ErrUnavailable)
		}
	}
	if _, err := s.AddNotices(t.Context(), []notices.Notice{{ID: "ntc_1", Account: "acct"}}); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("AddNotices: %v, want %v", err, auth.ErrUnavailable)
	}
}
