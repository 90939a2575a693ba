package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// entryNo returns the nth audit entry of a test for the target with the given kind and id.
func entryNo(kind audit.TargetKind, id string, n int) audit.Entry {
	return audit.Entry{
		ID: fmt.Sprintf("%s_%06d", id, n), Account: "acct", At: time.Now(), Action: audit.KeyChanged,
		Target: audit.Target{Kind: kind, ID: id}, Pending: true,
	}
}

// Two nodes make changes while their connections are cut at random times. Each stored change must
// have an audit entry and vice versa, and the audit entries of a target must be in the order of its
// changes.
func TestAuditEntries_ConnectionsCut_MatchChanges(t *testing.T) {
	t.Parallel()
	own, _ := migrated(t, "fsync=off") // a separate server
	dsn := own.Config().ConnString()
	nodes := []*postgres.Store{openOn(t, own), openOn(t, own)}
	if err := nodes[0].CreateKey(t.Context(), keyNo(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].CreateWebhook(t.Context(), newWebhook("acct", "wh"), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			for ctx.Err() == nil { // errors are expected here
				if s := nodes[i%2]; i < 3 {
					_, _ = s.UpdateKey(t.Context(), "acct", "key_1", func(k *driver.Key, n *audit.Entry) error {
						count, _ := strconv.Atoi(k.Name)
						k.Name, *n = strconv.Itoa(count+1), entryNo(audit.TargetKey, "key_1", count+1)
						return nil
					})
				} else {
					_, _ = s.UpdateWebhook(t.Context(), "acct", "wh", func(w *driver.Webhook, n *audit.Entry) error {
						w.Threshold++
						*n = entryNo(audit.TargetWebhook, "wh", int(w.Threshold))
						return nil
					})
				}
			}
		})
	}
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		cutConnections(t, dsn)
	}
	cancel()
	group.Wait()

	var key driver.Key
	var webhook driver.Webhook
	var pending []audit.Numbered
	for try := 0; ; try++ { // the pool may still return a connection that was cut
		var err error
		if key, err = nodes[0].KeyByID(t.Context(), "acct", "key_1"); err == nil {
			if webhook, err = nodes[0].WebhookByID(t.Context(), "acct", "wh"); err == nil {
				pending, err = nodes[0].PendingAuditEntries(t.Context(), "acct", 1_000_000)
			}
		}
		if err == nil {
			break
		}
		if try == 10 {
			t.Fatal(err)
		}
	}
	ids := map[string][]string{}
	for _, n := range pending {
		ids[n.Entry.Target.ID] = append(ids[n.Entry.Target.ID], n.Entry.ID)
	}
	changes, _ := strconv.Atoi(key.Name)
	for id, count := range map[string]int{"key_1": changes, "wh": int(webhook.Threshold - newWebhook("acct", "wh").Threshold)} {
		if got := ids[id]; len(got) != count || count == 0 || !slices.IsSorted(got) {
			t.Errorf("%s has %d audit entries, in order %v, and was changed %d times", id, len(got), slices.IsSorted(got), count)
		}
	}
}

// A node that dies without releasing the lease blocks other nodes only until the lease expires. The
// next holder then reports the entries that the dead node did not take.
func TestAuditLease_NodeDied_Expires(t *testing.T) {
	option := inSchema(t)
	dead, next := open(t, option), open(t, option)
	lease := func(s *postgres.Store, holder string, ttl time.Duration) bool {
		t.Helper()
		held, err := s.LeaseAudit(t.Context(), holder, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	if _, err := dead.AddAuditEntries(t.Context(), []audit.Entry{entryNo(audit.TargetKey, "key_1", 1), entryNo(audit.TargetKey, "key_1", 2)}); err != nil {
		t.Fatal(err)
	}
	if !lease(dead, "dead", time.Second) || lease(next, "next", time.Minute) {
		t.Fatal("the lease is not the first holder's")
	}
	list, err := dead.PendingAuditEntries(t.Context(), "acct", 9)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if err := dead.TakeAuditEntries(t.Context(), []uint64{list[0].Number}); err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !lease(next, "next", time.Minute); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the lease of a node that died does not end")
		}
	}
	if list, err = next.PendingAuditEntries(t.Context(), "acct", 9); err != nil || len(list) != 1 || list[0].Entry.ID != "key_1_000002" {
		t.Error(list, err)
	}
}

// Four indexes of audit entries begin with the account. A plan made while there are no entries must
// not search all entries of the account for each entry.
func TestRemoveAuditEntries_PlannedWhileEmpty_ReadsEachOnce(t *testing.T) {
	t.Parallel()
	const many, old = 4000, 1000
	for name, test := range map[string]struct {
		statement func(postgres.Option) string
		args      []any
	}{
		"trim":  {postgres.TrimAuditEntries, []any{"acct", many - old}},
		"purge": {postgres.PurgeAuditEntries, []any{time.Now(), old}},
	} {
		t.Run(name, func(t *testing.T) {
			schema, option := migratedSchema(t)
			tx, err := pool(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			exec := func(sql string, args ...any) int64 {
				t.Helper()
				done, err := tx.Exec(t.Context(), sql, args...)
				if err != nil {
					t.Fatal(err)
				}
				return done.RowsAffected()
			}
			exec(postgres.Indexed)
			exec(test.statement(option), test.args...)
			exec(`insert into `+quoted(schema)+`.audit (account, id, pending, at, action, target_kind, target_id, routine, stored_at)
				select 'acct', 'id' || i, false, now(), '', 'key', '', true, now() - interval '1 day'
				from generate_series(1, $1::integer) i`, many)
			if n := exec(test.statement(option), test.args...); n != old {
				t.Errorf("%d audit entries were removed, want %d", n, old)
			}
			var read int
			if err := tx.QueryRow(t.Context(), `select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where schemaname = $1 and relname = 'audit'`, schema).Scan(&read); err != nil {
				t.Fatal(err)
			}
			if read > 3*many {
				t.Errorf("%d rows were read to remove %d of %d", read, old, many)
			}
		})
	}
}
