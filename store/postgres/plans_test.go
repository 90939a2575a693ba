package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// filled adds the given number of rows of other accounts to every table that grows, as if they had
// been added since the server's last analyze. Their times are two hours ahead, so that Purge keeps
// them.
const filled = `
	insert into keys (hash, account, id, name, scopes, created_at, expires_at)
		select sha256(convert_to('many' || i, 'UTF8')), 'many_' || i %% 1000, 'key_' || i, 'name', '{}', now(), now() + i * interval '1 minute' from generate_series(1, %[1]d) i;
	insert into key_uses (account, id, hash, at) select account, id, '', now() from keys where account like 'many%%';
	insert into accounts (account) select 'many_' || i from generate_series(1, %[1]d) i;
	insert into requests (kind, account, name, id, sum, at, key_id) select i %% 2, 'many_' || i, 'request', 'id', '', now(), '' from generate_series(1, %[1]d) i;
	insert into webhooks (account, id, url, events, active, off_reason, secret, created_at)
		select 'many_' || i, 'many_' || i, 'https://example.com', '{balance.low}', true, '', '', now() from generate_series(1, %[1]d) i;
	insert into past_webhooks (no, account, id, deleted_at) select -i, 'many_' || i, 'past_' || i, now() from generate_series(1, %[1]d) i;
	insert into alerts (account, series, state) select 'many_' || i, 'balance', 'state' from generate_series(1, %[1]d) i;
	insert into dedup_keys (account, key, until) select 'many_' || i, 'key', now() + interval '1 year' from generate_series(1, %[1]d) i;
	create temp table many on commit drop as
		select i, (extract(epoch from now() + interval '2 hours' - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint * 4096 + i as event
		from generate_series(1, %[1]d) i;
	insert into event_log (event, account, id, type, at, matched)
		select event, 'many_' || i %% 1000, 'event_' || i, 'balance.low', now(), 1 from many;
	insert into event_bodies (event, body) select event, '' from many;
	insert into event_ids (part, account, id, event) select 0, 'many_' || i %% 1000, 'event_' || i, event from many;
	insert into attempt_log (event, webhook, number, state, started_at, took, status, class, error, response)
		select event, -i, 1, 1, now(), 1, 200, '', '', '' from many;
	insert into failure_log (webhook, event) select -i, event from many;
	insert into pending (webhook, event, shard, recovered, due, attempts, before)
		select -i, event, i %% 256, false, now() + interval '1 year', 0, 0 from many;
	insert into changes (added, kind, shards, webhooks, events)
		select -i, 1, array[i %% 256], array[-i], array[event] from many`

// asks are calls that look up a few rows. Each call acts on an account that transacting has made
// and whose name ends with a number.
var asks = map[string]func(ctx context.Context, s *postgres.Store, of string) error{
	"KeyByHash": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.KeyByHash(ctx, testKey(of, of, 1).Hash)
		return err
	},
	"KeyByID": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.KeyByID(ctx, of, of)
		return err
	},
	"ListKeys": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ListKeys(ctx, of, driver.ListQuery{Limit: 9})
		return err
	},
	"ExpiringKeys": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ExpiringKeys(ctx, driver.ExpiryQuery{Before: time.Now().AddDate(9, 0, 0), Limit: 9})
		return err
	},
	"AccountSizes": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.AccountSizes(ctx, []string{of})
		return err
	},
	"WebhookByID": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.WebhookByID(ctx, of, of)
		return err
	},
	"ListWebhooks": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ListWebhooks(ctx, of, driver.ListQuery{Limit: 9})
		return err
	},
	"HeldWebhooks": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.HeldWebhooks(ctx, driver.ListQuery{Limit: 9})
		return err
	},
	"RecordKeyUse": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.RecordKeyUse(ctx, []driver.KeyUse{{Account: of, ID: of, Hash: testKey(of, of, 1).Hash, At: time.Now()}})
	},
	"Enqueue": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.Enqueue(ctx, driver.EncodedEvent{ID: of + "3", Account: of, Type: alerts.TypeBalanceLow})
		return err
	},
	"Probe": func(ctx context.Context, s *postgres.Store, of string) error { return s.Probe(ctx, of, of) },
	"Redeliver what is pending": func(ctx context.Context, s *postgres.Store, of string) error {
		if _, err := s.Enqueue(ctx, driver.EncodedEvent{ID: of + "4", Account: of, Type: alerts.TypeBalanceLow}); err != nil {
			return err
		}
		return s.Redeliver(ctx, of, of, of+"4", testAuditEntry(of))
	},
	"EraseAccount": func(ctx context.Context, s *postgres.Store, of string) error {
		for {
			if _, more, err := s.EraseAccount(ctx, of, 100); err != nil || !more {
				return err
			}
		}
	},
	"UnseenKeys": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.UnseenKeys(ctx, of, []driver.DedupKey{{Key: "notice", Until: time.Now()}})
		return err
	},
	"DueAlerts": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.DueAlerts(ctx, 9)
		return err
	},
	"EventDeliveries": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.EventDeliveries(ctx, of, of)
		return err
	},
	"ListDeliveries": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ListDeliveries(ctx, of, of, driver.DeliveryQuery{Limit: 9})
		return err
	},
	"ListEvents of a webhook": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ListEvents(ctx, of, driver.EventQuery{WebhookID: of, Limit: 9})
		return err
	},
	"ListDeliveries of Failed": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ListDeliveries(ctx, of, of, driver.DeliveryQuery{Failed: true, Limit: 9})
		return err
	},
	"RecoveryByID": func(ctx context.Context, s *postgres.Store, of string) error {
		if _, err := s.RecoveryByID(ctx, of, of); !errors.Is(err, apierr.ErrNotFound) {
			return err
		}
		return nil
	},
	"Unreported": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.Unreported(ctx, of)
		return err
	},
}

// Plans made while tables are empty must not read whole tables once the tables are full. This holds
// for the host's connections and for connections of Open.
func TestPlans_MadeWhileTablesAreEmpty_AvoidFullScans(t *testing.T) {
	t.Parallel()
	var late bool // before PostgreSQL 15: statistics arrive half a second late, perhaps in a later step
	if err := pool(t).QueryRow(t.Context(), `select current_setting('server_version_num')::int < 150000`).Scan(&late); err != nil {
		t.Fatal(err)
	}
	for whose, open := range map[string]func(t *testing.T, name string, option postgres.Option) *postgres.Store{
		"the host's": func(t *testing.T, name string, option postgres.Option) *postgres.Store {
			config := pool(t).Config()
			config.MaxConns = 1
			p, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			s, err := postgres.New(t.Context(), p, option)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"our own": func(t *testing.T, _ string, option postgres.Option) *postgres.Store {
			s, err := postgres.Open(t.Context(), newRelay(t).dsn(t, "pool_max_conns=1"), option)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(whose, func(t *testing.T) {
			const many, rounds = 20_000, 6
			name, option := migratedSchema(t)
			exec := func(sql string) {
				t.Helper()
				err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), `set local search_path = `+quoted(name)+`, pg_temp; `+sql)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			vacuum(t, name)
			s := open(t, name, option)
			steps := make(map[string]func(ctx context.Context, s *postgres.Store, of string) error)
			for _, of := range []map[string]func(ctx context.Context, s *postgres.Store, of string) error{asks, transactions} {
				maps.Copy(steps, of)
			}
			measured := func(what string, do func()) {
				t.Helper()
				before := readOf(t, s, name)
				do()
				for table, n := range readOf(t, s, name) {
					if n -= before[table]; n > many/20 {
						t.Errorf("%s read %d rows or entries of %s", what, n, table)
					}
				}
			}
			round := func(prefix string, measure func(what string, do func())) {
				for step, do := range steps {
					of := prefix + step
					if of == "late Purge" {
						continue // these calls have many rows to process now
					}
					measure("before "+step, func() {
						transacting(t, s, of)
						if step == "AdvanceRecovery" {
							if err := transactions["CreateRecovery"](t.Context(), s, of); err != nil {
								t.Fatal(err)
							}
						}
					})
					measure(step, func() {
						if err := do(t.Context(), s, of); err != nil {
							t.Fatal(of, err)
						}
					})
				}
			}
			for i := range rounds {
				round(fmt.Sprint("early ", i, " "), func(_ string, do func()) { do() })
			}
			checkPlans(t, name, s)
			if late {
				return
			}
			exec(fmt.Sprintf(filled, many))
			round("late ", measured)
			_ = s.Close()
		})
	}
}

// readThrough lists the tables and indexes that plans may read from the beginning. Either a plan
// reads a page in their order, or they never have many rows.
var readThrough = []string{
	"alerts_due", "webhooks_held", "recoveries_undone", "changes_probes", "past_webhooks_pkey", "past_webhooks", "recoveries_pkey", "recoveries",
	"webhooks_account: (id = $2)", // webhooks have no index by id alone
	"partitions", "partitions_pkey", "nodes_pkey",
	"event_log_0_pkey", // to find its last event
	"versions", "versions_pkey", "marks_pkey", "heartbeats", "heartbeats_pkey", "shard_owners", "shard_owners_pkey", "erasures_pkey", "event_clock", "event_numbers",
}

// checkPlans plans the prepared statements of a store's only connection again, on empty tables.
// Each plan must read indexes only from a position that it searches for. Empty tables make all
// plans look equally cheap. In the other steps of this test, table sizes depend on earlier steps.
func checkPlans(t *testing.T, schema string, s *postgres.Store) {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `select statement from pg_prepared_statements where position($1 in statement) > 0 and statement not like 'begin%'`, quoted(schema))
	if err != nil {
		t.Fatal(err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(statements) < 50 {
		t.Fatal(len(statements), err)
	}
	empty, option := migratedSchema(t)
	vacuum(t, empty)
	conn, err := pgx.Connect(t.Context(), pool(t).Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	firsts := make(map[string]string) // first column of each index
	rows, err = conn.Query(t.Context(), `
		select c.relname::text, a.attname::text from pg_index i join pg_class c on c.oid = i.indexrelid join pg_attribute a on a.attrelid = c.oid and a.attnum = 1
		where c.relnamespace = $1::regnamespace`, quoted(empty))
	if err != nil {
		t.Fatal(err)
	}
	var index, column string
	if _, err := pgx.ForEachRow(rows, []any{&index, &column}, func() error { firsts[index] = column; return nil }); err != nil {
		t.Fatal(err)
	}
	scan := regexp.MustCompile(`(?:Seq|Index|Index Only) Scan (?:Backward )?(?:using (\w+) )?on (\w+)`)
	for i, sql := range statements {
		name, sql := fmt.Sprint("planned_", i), strings.ReplaceAll(sql, quoted(schema), quoted(empty))
		described, err := conn.Prepare(t.Context(), name, sql)
		if err != nil {
			t.Fatal(err)
		}
		execute := `explain execute ` + name
		if n := len(described.ParamOIDs); n > 0 {
			execute += `(null` + strings.Repeat(`, null`, n-1) + `)`
		}
		settings := postgres.LookUp
		if sql == postgres.ClaimedEvents(option) {
			settings = postgres.InOrder
		}
		results, err := conn.PgConn().Exec(t.Context(), `begin; select set_config('plan_cache_mode', 'force_generic_plan', true); `+settings+`; `+execute+`; rollback`).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for _, result := range results {
			for _, row := range result.Rows {
				plan = append(plan, string(row[0]))
			}
		}
		for at, line := range plan {
			found := scan.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			index := cmp.Or(found[1], found[2])
			_, condition, _ := strings.Cut(strings.Join(plan[at+1:min(at+2, len(plan))], ""), "Index Cond: ")
			may := slices.ContainsFunc(readThrough, func(may string) bool {
				of, begins, _ := strings.Cut(may, ": ")
				return of == index && strings.HasPrefix(condition, begins)
			})
			if may || condition != "" && regexp.MustCompile(`\b`+firsts[index]+`\b`).MatchString(condition) {
				continue
			}
			t.Errorf("%s\nis planned to read %s through:\n%s", sql, index, strings.Join(plan, "\n"))
		}
	}
}

// vacuum updates the server's statistics about the sizes of the tables.
func vacuum(t *testing.T, schema string) {
	t.Helper()
	for _, table := range tablesOf(t, schema) {
		if _, err := pool(t).Exec(t.Context(), `vacuum analyze `+quoted(schema)+`.`+table); err != nil {
			t.Fatal(err)
		}
	}
}

func tablesOf(t testing.TB, schema string) []string {
	t.Helper()
	rows, err := pool(t).Query(t.Context(), `select relname::text from pg_stat_user_tables where schemaname = $1 order by relname`, schema)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// readOf returns, by table and index, how many rows and index entries the only connection of a
// store has read. It omits shard_owners, which always has 256 rows and may be read completely.
func readOf(t *testing.T, s *postgres.Store, schema string) map[string]int64 {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), `select pg_stat_force_next_flush()`); err != nil {
		t.Fatal(err)
	}
	of := make(map[string]int64)
	rows, err := s.Pool().Query(t.Context(), `
		select relname::text, seq_tup_read from pg_stat_user_tables where schemaname = $1 and relname <> 'shard_owners'
		union all select indexrelname::text, idx_tup_read from pg_stat_user_indexes where schemaname = $1 and relname <> 'shard_owners'`, schema)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { of[name] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	return of
}

// The statements of a mostly idle node are not planned again at each call.
func TestPlans_IdleNode_AreReused(t *testing.T) {
	option := inSchema(t)
	config := pool(t).Config()
	config.MaxConns = 1
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	publisher := open(t, option)
	for i := range 20 {
		id := fmt.Sprint("wh_", i)
		if err := publisher.CreateWebhook(t.Context(), newWebhook("acct", id), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := publisher.Enqueue(t.Context(), driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is claimed", func() bool {
			list := claimed(t, s)
			for _, task := range list {
				settleAs(t, s, task, driver.Deliver)
			}
			return len(list) > 0
		})
		if err := publisher.DeleteWebhook(t.Context(), "acct", id, nil, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := p.Query(t.Context(), `select statement, custom_plans, generic_plans from pg_prepared_statements where custom_plans > 6`)
	if err != nil {
		t.Fatal(err)
	}
	var sql string
	var custom, generic int
	if _, err := pgx.ForEachRow(rows, []any{&sql, &custom, &generic}, func() error {
		t.Errorf("planned %d times, and %d times not:\n%s", custom, generic, sql)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
