package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// otherClock returns connections that see a database clock that the test can set: ahead sets how
// far it is ahead of this node's clock, or behind if the duration is negative.
func otherClock(t *testing.T) (p *pgxpool.Pool, ahead func(time.Duration)) {
	t.Helper()
	function := func(by time.Duration) string {
		return fmt.Sprintf(`clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.clock_timestamp() + interval '%d seconds' $$`, int(by.Seconds()))
	}
	p = poolWith(t, function(0))
	schema, _, _ := strings.Cut(p.Config().ConnConfig.RuntimeParams["search_path"], ", pg_catalog")
	return p, func(by time.Duration) {
		t.Helper()
		if _, err := p.Exec(t.Context(), `create or replace function `+schema+`.`+function(by)); err != nil {
			t.Fatal(err)
		}
	}
}

// A node whose clock differs from the database's by more than an hour does not deliver, and its
// error contains the difference.
func TestClock_DiffersByMoreThanAnHour_IsRefused(t *testing.T) {
	option := inSchema(t)
	p, ahead := otherClock(t)
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.CheckClockAlways()
	endpoints(t, s, 1)
	claim := func() error {
		storetest.WorkerOf(s).Close() // Deliver first checks the clock
		_, err := storetest.WorkerOf(s).Claim(t.Context(), 1)
		return err
	}
	for by, text := range map[time.Duration]string{
		59 * time.Minute: "", -59 * time.Minute: "", 61 * time.Minute: "it is 1h1m0s behind, and at most 1h0m0s is allowed", -61 * time.Minute: "it is 1h1m0s ahead, and at most 1h0m0s is allowed",
	} {
		ahead(by)
		other, newErr := postgres.New(context.Background(), p, option)
		if newErr == nil {
			_ = other.Close()
		}
		_, addErr := s.AddAuditEntries(t.Context(), []audit.Entry{{Account: "acct", ID: "id", Action: audit.KeyExpiring}})
		scanErr := s.UpdateScan(t.Context(), func(state []byte) ([]byte, error) { return state, nil })
		for what, err := range map[string]error{"New": newErr, "Claim": claim(), "AddAuditEntries": addErr, "UpdateScan": scanErr} {
			if (text != "") != errors.Is(err, postgres.ErrClock) || err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s with a database that is %v ahead = %v, want %q", what, by, err, text)
			}
		}
		if now, err := s.Now(t.Context()); err != nil || time.Until(now.Add(-by)).Abs() > 10*time.Second {
			t.Errorf("Now = %v, %v with a database that is %v ahead", now, err, by)
		}
	}
	ahead(0)
	eventually(t, "claims go on once the clock is right", func() bool { return claim() == nil })
}
