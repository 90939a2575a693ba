package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// TestEraseLeavesNoRows runs each step of an erasure on another node, as after crashes. The erasure
// must leave no row of the account in any table, and must keep all rows of another account.
func TestEraseLeavesNoRows(t *testing.T) {
	name := inSchema(t)
	nodes := []*postgres.Store{open(t, name), open(t, name), open(t, name)}
	ctx, s := t.Context(), nodes[0]
	listens(t, nodes[0])
	listens(t, nodes[1])
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const n = 100
	mark := func(account string, last byte) (hash driver.Hash) {
		copy(hash.Sum[:], account)
		hash.Sum[31] = last
		return hash
	}
	for _, account := range []string{"SECRETacct", "other"} {
		request := driver.CreateOptions{IdempotencyKey: account, IdempotencyTTL: time.Hour}
		must(s.CreateKey(ctx, driver.Key{ID: account + "key", Account: account, Name: account, Hash: mark(account, 1), Previous: mark(account, 2)}, request))
		must(s.RecordKeyUse(ctx, []driver.KeyUse{{Account: account, ID: account + "key", Hash: mark(account, 1), At: time.Now()}}))
		for _, id := range []string{"a", "b", "gone"} {
			must(s.CreateWebhook(ctx, driver.Webhook{
				ID: account + id, Account: account, URL: "https://" + account, WebhookHealth: driver.WebhookHealth{Active: id != "b"}, Secret: signing.NewSecret(), Events: []driver.EventType{"type"},
			}, driver.CreateOptions{}))
		}
		_, err := s.EnqueueOnce(ctx, driver.EncodedEvent{ID: account, Account: account, Type: "type", Body: []byte(account)},
			[]driver.DedupKey{{Key: account, Until: time.Now().Add(time.Hour)}})
		must(err)
		_, err = s.UpdateAlert(ctx, account, "metric", func(step *driver.AlertStep) error { step.State = []byte(account); return nil })
		must(err)
		must(s.CreateRecovery(ctx, driver.Recovery{ID: account, Account: account, WebhookID: account + "a"}, audit.Entry{}))
		for i := range n {
			_, err := s.Enqueue(ctx, driver.EncodedEvent{ID: fmt.Sprint(account, i), Account: account, Type: "type", Body: []byte(account)})
			must(err)
		}
	}
	tasks, err := storetest.WorkerOf(s).Claim(ctx, 2*n)
	must(err)
	for i, task := range tasks {
		outcome := []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry}[i%3]
		_, err := storetest.WorkerOf(s).Settle(ctx, []storetest.Settlement{{Task: task, Effect: outcome, RetryAfter: time.Hour,
			Attempt: driver.Attempt{Number: 1, Error: task.Webhook.Account, Response: task.Webhook.Account, StartedAt: time.Now()}}})
		must(err)
	}
	for _, node := range nodes {
		_, err := node.KeyByHash(ctx, mark("SECRETacct", 1)) // now the key is in memory
		must(err)
	}

	before := rowsWith(t, name, "other")
	var erased store.Receipt
	steps := 0
	for more := true; more; steps++ {
		erased, more, err = nodes[steps%len(nodes)].EraseAccount(ctx, "SECRETacct", 7)
		must(err)
		for i, node := range nodes {
			eventually(t, fmt.Sprintf("node %d knows that the key is gone", i), func() bool {
				_, err := node.KeyByHash(ctx, mark("SECRETacct", 1))
				return errors.Is(err, apierr.ErrNotFound)
			})
		}
		if more {
			if err := nodes[(steps+1)%len(nodes)].CreateKey(ctx, driver.Key{ID: "new", Account: "SECRETacct", Hash: mark("new", 1)}, driver.CreateOptions{}); !errors.Is(err, auth.ErrErasing) {
				t.Fatalf("CreateKey = %v, want ErrErasing", err)
			}
		}
	}
	if steps < 10 {
		t.Errorf("%d steps", steps)
	}
	if diff := cmp.Diff(store.Receipt{
		Keys: 1, Webhooks: 3, Events: n + 1, Deliveries: 3*n + 3, Recoveries: 1, Alerts: 1, DedupKeys: 1, IdempotencyKeys: 1,
	}, erased); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	for table, rows := range rowsWith(t, name, "SECRET") {
		t.Errorf("%d rows of %s tell of the account", rows, table)
	}
	if diff := cmp.Diff(before, rowsWith(t, name, "other")); diff != "" {
		t.Errorf("rows of another account (-before +after):\n%s", diff)
	}
	backlog, err := storetest.WorkerOf(nodes[1]).Backlog(ctx, "")
	must(err)
	if want := pendingOfOther(t, name); backlog.Pending != want {
		t.Errorf("pending: %d, want %d", backlog.Pending, want)
	}
}

// rowsWith counts, by table, the rows that contain a text or its bytes.
func rowsWith(t *testing.T, option postgres.Option, text string) map[string]int {
	t.Helper()
	schema := postgres.SchemaOf(option)
	rows, err := pool(t).Query(t.Context(), `select table_name from information_schema.tables where table_schema = $1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 15 {
		t.Fatal(tables, err)
	}
	found := make(map[string]int)
	for _, table := range tables {
		var n int
		name := pgx.Identifier{schema, table}.Sanitize()
		err := pool(t).QueryRow(t.Context(), `select count(*) from `+name+` r where position($1 in r::text) > 0 or position($2 in r::text) > 0`,
			text, strings.ToLower(fmt.Sprintf("%x", text))).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found[table] = n
		}
	}
	return found
}

func pendingOfOther(t *testing.T, option postgres.Option) (n int) {
	t.Helper()
	schema := pgx.Identifier{postgres.SchemaOf(option)}.Sanitize()
	err := pool(t).QueryRow(t.Context(), `select count(*) from `+schema+`.pending q join `+schema+`.webhooks w on w.no = q.webhook where w.account = 'other'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
