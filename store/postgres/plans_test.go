package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// filled puts so many rows into every table that grows, of other accounts, as if all
// had come since the server last looked.
const filled = `
	insert into keys (hash, account, id, name, scopes, created_at, expires_at)
		select sha256(convert_to('many' || i, 'UTF8')), 'many_' || i %% 1000, 'key_' || i, 'name', '{}', now(), now() + i * interval '1 minute' from generate_series(1, %[1]d) i;
	insert into key_uses (account, id, hash, at) select account, id, '', now() from keys where account like 'many%%';
	insert into accounts (account) select 'many_' || i from generate_series(1, %[1]d) i;
	insert into requests (kind, account, name, id, sum, at) select i %% 2, 'many_' || i, 'request', 'id', '', now() from generate_series(1, %[1]d) i;
	insert into webhooks (account, id, shard, url, events, past_events, active, off_reason, balance_threshold, secret, created_at)
		select 'many_' || i, 'many_' || i, i %% 16, 'https://example.com', '{balance.low}', '{}', true, '', 0, '', now() from generate_series(1, %[1]d) i;
	insert into past_webhooks (no, account, id, deleted_at) select -i, 'many_' || i, 'past_' || i, now() from generate_series(1, %[1]d) i;
	insert into alerts (account, metric, state) select 'many_' || i, 'balance', 'state' from generate_series(1, %[1]d) i;
	insert into notices (account, key, until) select 'many_' || i, 'key', now() + interval '1 year' from generate_series(1, %[1]d) i;
	insert into events (event, account, id, type, at, matched, body)
		select i, 'many_' || i %% 1000, 'event_' || i, 'balance.low', now(), 1, '' from generate_series(9000000000000000001, 9000000000000000000 + %[1]d) i;
	insert into attempts (event, webhook, number, state, started_at, took, status, class, error, response)
		select 9000000000000000000 + i, -i, 1, 1, now(), 1, 200, '', '', '' from generate_series(1, %[1]d) i;
	insert into failures (webhook, event) select -i, 9000000000000000000 + i from generate_series(1, %[1]d) i;
	insert into pending (webhook, event, shard, recovered, due, attempts, before)
		select -i, 9000000000000000000 + i, i %% 256, false, now() + interval '1 year', 0, 0 from generate_series(1, %[1]d) i;
	insert into changes (added, kind, shards, webhooks, events)
		select -i, 1, array[i %% 256], array[-i], array[9000000000000000000 + i] from generate_series(1, %[1]d) i`

// emptied leaves the tables that filled fills, and those that are filled with them, without a page.
const emptied = `
	truncate storageapi.keys, storageapi.key_uses, storageapi.accounts, storageapi.requests, storageapi.webhooks, storageapi.past_webhooks,
		storageapi.alerts, storageapi.notices, storageapi.events, storageapi.attempts, storageapi.failures, storageapi.pending, storageapi.changes,
		storageapi.recoveries, storageapi.audit, storageapi.expiring, storageapi.erasures`

// asks are calls that look up some rows. Of them is what transactions makes, whose
// names come with a number.
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
		_, err := s.ListKeys(ctx, of, apikeys.Page{Limit: 9})
		return err
	},
	"ExpiringKeys": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ExpiringKeys(ctx, apikeys.ExpiryQuery{Before: time.Now().AddDate(9, 0, 0), Limit: 9})
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
		_, err := s.ListWebhooks(ctx, of, webhooks.Page{Limit: 9})
		return err
	},
	"HeldWebhooks": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.HeldWebhooks(ctx, webhooks.Page{Limit: 9})
		return err
	},
	"RecordKeyUse": func(ctx context.Context, s *postgres.Store, of string) error {
		return s.RecordKeyUse(ctx, []apikeys.KeyUse{{Account: of, ID: of, Hash: testKey(of, of, 1).Hash, At: time.Now()}})
	},
	"Enqueue": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.Enqueue(ctx, webhooks.EncodedEvent{ID: of + "3", Account: of, Type: webhooks.TypeBalanceLow})
		return err
	},
	"Probe": func(ctx context.Context, s *postgres.Store, of string) error { return s.Probe(ctx, of, of) },
	"Redeliver what is pending": func(ctx context.Context, s *postgres.Store, of string) error {
		if _, err := s.Enqueue(ctx, webhooks.EncodedEvent{ID: of + "4", Account: of, Type: webhooks.TypeBalanceLow}); err != nil {
			return err
		}
		return s.Redeliver(ctx, of, of, of+"4", testNotice(of))
	},
	"EraseAccount": func(ctx context.Context, s *postgres.Store, of string) error {
		for {
			if _, more, err := s.EraseAccount(ctx, of, 100); err != nil || !more {
				return err
			}
		}
	},
	"UnseenKeys": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.UnseenKeys(ctx, of, []webhooks.DedupKey{{Key: "notice", Until: time.Now()}})
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
		_, err := s.ListDeliveries(ctx, of, of, webhooks.DeliveryQuery{Limit: 9})
		return err
	},
	"ListDeliveries of Failed": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.ListDeliveries(ctx, of, of, webhooks.DeliveryQuery{Failed: true, Limit: 9})
		return err
	},
	"RecoveryByID": func(ctx context.Context, s *postgres.Store, of string) error {
		if _, err := s.RecoveryByID(ctx, of, of); !errors.Is(err, webhooks.ErrNotFound) {
			return err
		}
		return nil
	},
	"LongestWait": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.LongestWait(ctx)
		return err
	},
	"Backlog": func(ctx context.Context, s *postgres.Store, of string) error {
		_, err := s.Backlog(ctx, of)
		return err
	},
}

// What is planned while tables are empty does not read them through once they are full:
// on connections of the host's, and on our own. A table without a page is planned as if it stayed
// so: then all plans look as cheap. One page is taken for some rows.
func TestPlansOfEmptyTables(t *testing.T) {
	var version int
	if err := pool(t).QueryRow(t.Context(), `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 150_000 {
		t.Skip("the server counts what was read half a second late, as of other steps")
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
			const some, many, rounds = 2000, 20_000, 6
			name, option := migratedSchema(t)
			exec := func(sql string) {
				t.Helper()
				err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), `set local search_path = `+quoted(name)+`; `+sql)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			empty := func() { // and the server knows that
				exec(strings.ReplaceAll(emptied, "storageapi.", ""))
				for _, table := range tablesOf(t, name) {
					if _, err := pool(t).Exec(t.Context(), `vacuum analyze `+quoted(name)+`.`+table); err != nil {
						t.Fatal(err)
					}
				}
			}
			s := open(t, name, option)
			steps := make(map[string]func(ctx context.Context, s *postgres.Store, of string) error)
			for _, of := range []map[string]func(ctx context.Context, s *postgres.Store, of string) error{asks, transactions} {
				maps.Copy(steps, of)
			}
			limit := int64(some / 2)
			measured := func(what string, do func()) {
				t.Helper()
				before := readOf(t, s, name)
				do()
				for table, n := range readOf(t, s, name) {
					if n -= before[table]; n > limit {
						t.Errorf("%s read %d rows or entries of %s", what, n, table)
					}
				}
			}
			for step, do := range steps {
				empty()
				_ = do(t.Context(), s, "nobody") // all that it asks for is planned, and what comes after that with few rows
				transacting(t, s, "one")
				if err := do(t.Context(), s, "one"); err != nil {
					t.Fatal(step, err)
				}
				exec(fmt.Sprintf(filled, some))
				measured("first "+step, func() { // behind the others by its account, and by its numbers
					transacting(t, s, "other")
					if err := do(t.Context(), s, "other"); err != nil {
						t.Fatal(step, err)
					}
				})
			}
			limit = many / 20
			empty()
			round := func(prefix string, measure func(what string, do func())) {
				for step, do := range steps {
					of := prefix + step
					if of == "late Purge" {
						continue // there is much that it has to do now
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
			exec(fmt.Sprintf(filled, many))
			round("late ", measured)
			_ = s.Close()
		})
	}
}

func tablesOf(t *testing.T, schema string) []string {
	t.Helper()
	rows, err := pool(t).Query(t.Context(), `select relname::text from pg_stat_user_tables where schemaname = $1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// readOf returns how many rows and entries of indexes the only connection of a store has
// read, by table and index; not of shard_owners, which always has the same 256 rows: to read them all
// is right.
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
