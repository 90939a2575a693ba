package postgres_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// logged adds n events of the account of wh_000000 to the log. Most of them were delivered at the
// first attempt and have no row in event_log. At regular intervals, an event is dead (2), skipped
// (3), pending after a failure (0) or delivered after a failure (4).
const logged = `
	insert into event_log (event, account, id, type, at, matched)
		select i::bigint * 4096, 'acct_wh_000000', 'evt_' || i, 'balance.low', now(), 1 from generate_series(1, %[1]d) i where i %% %[2]d < 5;
	insert into attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
		select i::bigint * 4096, no, (k <> 3)::integer, case k when 4 then 0 else k end, now(), 1, 200, case k when 1 then '' else 'status' end, '', ''
		from (select i, case i %% %[2]d when 1 then 2 when 2 then 3 when 3 then 0 when 4 then 4 else 1 end as k from generate_series(1, %[1]d) i) i, webhooks;
	insert into attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
		select i::bigint * 4096, no, 2, 1, now(), 1, 200, '', '', '' from generate_series(1, %[1]d) i, webhooks where i %% %[2]d = 4`

// loggedPending adds the pending deliveries of these events.
const loggedPending = `;
	insert into pending (webhook, event, shard, recovered, due, attempts, before)
		select no, i::bigint * 4096, shard_of(account), false, now() + interval '1 hour', 1, 0 from generate_series(1, %[1]d) i, webhooks where i %% %[2]d = 3`

// failedOf lists the failed deliveries of wh_000000 in pages, and returns their events and
// the number of pages.
func failedOf(t testing.TB, s *postgres.Store, limit int) (events []string, pages int) {
	t.Helper()
	query := driver.DeliveryQuery{Failed: true, Limit: limit}
	for {
		page, err := s.ListDeliveries(t.Context(), "acct_wh_000000", "wh_000000", query)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Deliveries {
			events = append(events, d.EventID)
		}
		if pages++; page.Next == "" {
			return events, pages
		}
		query.After = page.Next
	}
}

// in runs statements with the schema's tables, in one transaction.
func in(t testing.TB, schema, sql string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `set local search_path = `+quoted(schema)+`; `+sql)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Listing failed deliveries uses the index of failed deliveries, no matter how many other
// deliveries there are.
func TestListFailed_UsesIndex(t *testing.T) {
	t.Parallel()
	const many, every = 200_000, 20_000
	name, option := migratedSchema(t)
	s := open(t, option)
	endpoints(t, s, 1)
	in(t, name, fmt.Sprintf(logged+loggedPending, many, every))
	plan := func() string {
		t.Helper()
		var lines []string
		err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), postgres.Indexed); err != nil {
				return err
			}
			rows, err := tx.Query(t.Context(), `explain (analyze, costs off, timing off, summary off) `+postgres.ListFailed(option), 1, "wh_000000", 0, int64(1<<62), 20)
			if err != nil {
				return err
			}
			lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	for _, known := range []bool{false, true} { // whether the planner has statistics
		if known {
			in(t, name, `analyze event_log, attempt_log, pending, failure_log`)
		}
		if got := plan(); strings.Contains(got, "Seq Scan") || !strings.Contains(got, "using failure_log_0_pkey") || !strings.Contains(got, "Index Cond: ((webhook = '1'::bigint) AND (event <") {
			t.Errorf("analyzed: %v; the plan is\n%s", known, got)
		}
	}
	var want []string
	for i := many - every; i >= 0; i -= every {
		for k := 3; k > 0; k-- {
			want = append(want, fmt.Sprintf("evt_%d", i+k))
		}
	}
	got, pages := failedOf(t, s, 10)
	if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
		t.Errorf("%d pages (-want +got):\n%s", pages, diff)
	}
	in(t, name, `delete from attempt_log where event in (select event from failure_log)`)
	if got, _ := failedOf(t, s, 10); len(got) > 0 {
		t.Errorf("after all was removed there are %v", got)
	}
	var left int
	if err := pool(t).QueryRow(t.Context(), `select count(*) from `+quoted(name)+`.failure_log`).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d failures are left, %v", left, err)
	}
}

var benchLogged = flag.Int("logged", 1_000_000, "deliveries that BenchmarkFailed looks through")

// BenchmarkFailed lists failed deliveries in pages of 20, for a webhook with many deliveries. In
// one case, 11 deliveries are dead, 11 skipped and 11 pending after a failure. In the other case,
// one in a hundred deliveries is in each of these states.
func BenchmarkFailed(b *testing.B) {
	for name, every := range map[string]int{"rare": *benchLogged/11 + 1, "one in 100": 100} {
		b.Run(name, func(b *testing.B) {
			p, _ := durable(b)
			s := openOn(b, p)
			endpoints(b, s, 1)
			if _, err := p.Exec(b.Context(), `set search_path = storageapi; `+fmt.Sprintf(logged+loggedPending, *benchLogged, every)+`; reset search_path; checkpoint`); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				page, err := s.ListDeliveries(b.Context(), "acct_wh_000000", "wh_000000", driver.DeliveryQuery{Failed: true, Limit: 20})
				if err != nil || len(page.Deliveries) < 20 {
					b.Fatalf("%d deliveries, %v", len(page.Deliveries), err)
				}
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(quantile(took, 0.5).Microseconds())/1000, "page_p50_ms")
			b.ReportMetric(float64(quantile(took, 0.99).Microseconds())/1000, "page_p99_ms")
		})
	}
}
