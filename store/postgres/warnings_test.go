package postgres_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// A new service logs a warning if the database's settings may lose acknowledged commits.
func TestNew_DatabaseMayLoseCommits_Warns(t *testing.T) {
	option := inSchema(t)
	settings := func(commit, sync string) *pgxpool.Pool {
		return poolWith(t, `current_setting(name text, missing_ok boolean) returns text language sql as $$
			select case name when 'synchronous_commit' then '`+commit+`' when 'fsync' then '`+sync+`' else pg_catalog.current_setting(name, missing_ok) end $$`)
	}
	for _, test := range []struct {
		commit, sync string
		want         []string
	}{
		{"on", "on", nil},
		{"local", "on", nil},
		{"off", "on", []string{"synchronous_commit is off"}},
		{"on", "off", []string{"fsync is off"}},
		{"off", "off", []string{"synchronous_commit is off", "fsync is off"}},
	} {
		s, err := postgres.New(t.Context(), settings(test.commit, test.sync), option)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		_, err = webhooks.New(s, webhooks.Config{Events: alerts.Events(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lines := strings.Count(log.String(), "level=WARN")
		if lines != len(test.want) {
			t.Errorf("synchronous_commit %s, fsync %s: %d warnings, want %d:\n%s", test.commit, test.sync, lines, len(test.want), log.String())
		}
		for _, want := range test.want {
			if !strings.Contains(log.String(), want) {
				t.Errorf("synchronous_commit %s, fsync %s: the log has %q, want %q", test.commit, test.sync, log.String(), want)
			}
		}
	}
}
