package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// traced returns a store with separate connections that have the given application_name, and a
// record of its failed statements.
func traced(t *testing.T, name string, option postgres.Option) (*postgres.Store, *failures) {
	t.Helper()
	failed := &failures{}
	config := pool(t).Config()
	config.ConnConfig.Tracer, config.MaxConns = failed, 12
	config.ConnConfig.RuntimeParams["application_name"] = name
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := postgres.New(t.Context(), p, option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, failed
}

// waits waits until n connections with the given application_name wait for a lock.
func waits(t *testing.T, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d of %s wait for a lock", n, name), func() bool {
		var waiting int
		err := pool(t).QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`, name).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting == n
	})
}

func (f *failures) want(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.list {
		t.Errorf("a statement failed: %v", err)
	}
}

// failing returns settlements that record the tasks as failed. Such settlements lock the tasks'
// webhooks.
func failing(tasks []storetest.Task) (list []storetest.Settlement) {
	for i := range tasks {
		task := tasks[len(tasks)-1-i]
		list = append(list, storetest.Settlement{
			Task: task, Effect: driver.Retry, RetryAfter: time.Minute,
			Attempt: driver.Attempt{Number: task.Attempt, StartedAt: task.Webhook.CreatedAt, Class: driver.ClassConnect},
		})
	}
	return list
}

// Deleting a webhook and settling its deliveries lock rows in the same order. A settlement that is
// waiting when the webhook is deleted returns no error; later settlements are stale.
func TestDeleteWebhook_DuringSettle_DoesNotDeadlock(t *testing.T) {
	name := strings.ReplaceAll(t.Name(), "/", " ")
	s, failed := traced(t, name, inSchema(t))
	endpoints(t, s, 1)
	const account, id = "acct_wh_000000", "wh_000000"
	for i := range 6 {
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint(i), Account: account, Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	first := failing(tasks)
	var late []storetest.Settlement
	var group sync.WaitGroup
	err = s.DeleteWebhook(t.Context(), account, id, func(driver.Webhook) error {
		late = failing(claimed(t, s)) // the webhook still exists
		group.Go(func() {
			if _, err := storetest.WorkerOf(s).Settle(t.Context(), first); err != nil {
				t.Errorf("Settle = %v", err)
			}
		})
		waits(t, name, 1)
		return nil
	}, audit.Entry{})
	if err != nil {
		t.Error(err)
	}
	group.Wait()
	if n := len(claimed(t, s)); n > 0 {
		t.Errorf("claimed %d of a webhook that was deleted", n)
	}
	if stale, err := storetest.WorkerOf(s).Settle(t.Context(), late); err != nil || len(stale) != len(late) || len(late) != 2 {
		t.Errorf("Settle = %v, %v, want all %d to be stale", stale, err, len(late))
	}
	failed.want(t)
}

// Settlements, and alerts that read webhooks, lock the webhooks in the same order.
func TestUpdateAlert_DuringSettle_DoesNotDeadlock(t *testing.T) {
	name := t.Name()
	schema, option := migratedSchema(t)
	s, failed := traced(t, name, option)
	for _, id := range []string{"b", "a"} { // not in id order
		if err := s.CreateWebhook(t.Context(), newWebhook("acct", id), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "event", Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
		t.Fatal(err)
	}
	list := failing(claimed(t, s))
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `select from `+quoted(schema)+`.webhooks where id = 'b' for update`); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if stale, err := storetest.WorkerOf(s).Settle(t.Context(), list); err != nil || len(stale) > 0 {
			t.Errorf("Settle = %v, %v", stale, err)
		}
	})
	waits(t, name, 1)
	group.Go(func() {
		_, err := s.UpdateAlert(t.Context(), "acct", "series", func(step *driver.AlertStep) error {
			var ids []string
			for _, w := range step.Webhooks() {
				ids = append(ids, w.ID)
			}
			if fmt.Sprint(ids) != "[a b]" {
				t.Errorf("the webhooks are %v, want [a b]", ids)
			}
			step.State = []byte("state")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	waits(t, name, 2)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	failed.want(t)
}
