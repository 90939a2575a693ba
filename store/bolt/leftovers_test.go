package bolt

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// Deleting a webhook does not remove the rows of its pending deliveries. Purges must remove these
// rows in steps, and must continue after the file is closed and opened again. Until then, no method
// may return them.
func TestDeleteWebhook_RowsAreRemovedInSteps(t *testing.T) {
	const events, limit = 1000, 100
	path := filepath.Join(t.TempDir(), "storage.db")
	s := mustOpen(t, path)
	for i := range 3 { // the first webhook is inactive
		if err := s.CreateWebhook(t.Context(), testWebhook(i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	publishMany(t, s, events)
	retrySome(t, s, "wh1", events/2)
	rows := pendingRows(t, s)
	if rows != 2*events {
		t.Fatalf("%d rows, want %d", rows, 2*events)
	}
	if err := s.DeleteWebhook(t.Context(), "acct", "wh1", nil, audit.Entry{}); err != nil {
		t.Fatal(err)
	}
	if left := pendingRows(t, s); left != rows {
		t.Errorf("the deletion removed %d rows by itself", rows-left)
	}
	for steps := 0; pendingRows(t, s) > events; steps++ {
		if steps == 3 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, path)
		}
		for i := 0; i < events; i += 99 {
			list, err := s.EventDeliveries(t.Context(), "acct", testEvent(i, 0).ID)
			if err != nil || len(list) != 2 || list[1].WebhookID != "wh2" || list[1].State != driver.Pending {
				t.Fatalf("after %d steps event %d has %+v, %v", steps, i, list, err)
			}
		}
		if got, err := storetest.WorkerOf(s).Backlog(t.Context(), ""); got.Pending != events || err != nil {
			t.Fatalf("after %d steps %d are pending, %v", steps, got.Pending, err)
		}
		before := pendingRows(t, s)
		more, err := s.Purge(t.Context(), driver.Purge{Limit: limit})
		if removed := before - pendingRows(t, s); err != nil || !more || removed > 2*limit || steps > 3*events/limit {
			t.Fatalf("step %d removed %d rows, %v, %v; want about %d and more", steps, removed, more, err, limit)
		}
	}
	if _, err := s.Purge(t.Context(), driver.Purge{Limit: limit}); err != nil { // finds no more rows
		t.Fatal(err)
	}
	if more, err := s.Purge(t.Context(), driver.Purge{Limit: limit}); more || err != nil {
		t.Errorf("Purge = %v, %v with nothing left over", more, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The test deletes many webhooks that have a few rows each. A single step must remove all these
// rows, and must also do the other work of a purge.
func TestPurge_ManyDeletedWebhooks_TakeOneStep(t *testing.T) {
	const deleted = 20
	s := openTemp(t)
	for i := range deleted {
		if err := s.CreateWebhook(t.Context(), testWebhook(1+i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	publishMany(t, s, 2)
	for i := range deleted {
		if err := s.DeleteWebhook(t.Context(), "acct", testWebhook(1+i).ID, nil, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	if rows := pendingRows(t, s); rows != 2*deleted {
		t.Fatalf("%d rows are left, want %d", rows, 2*deleted)
	}
	later := time.Now().Add(time.Minute)
	before := transactions(t, s)
	if _, err := s.Purge(t.Context(), driver.Purge{Payloads: later, Attempts: later, EventIDs: later, Limit: 1000}); err != nil {
		t.Fatal(err)
	}
	if rows, commits := pendingRows(t, s), transactions(t, s)-before; rows != 0 || commits > 2 {
		t.Errorf("after a purge %d rows are left, in %d commits; want 0 in 2 at most", rows, commits)
	}
	if _, _, err := s.EventByID(t.Context(), "acct", testEvent(0, 0).ID); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("an event that is past its time: %v, want %v", err, apierr.ErrNotFound)
	}
}

// transactions returns the ID of the last committed transaction.
func transactions(t *testing.T, s *engine) (id int) {
	t.Helper()
	if err := s.db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestLeftoversExpire checks that a purge ends pending deliveries of a deleted webhook without
// adding them to the event's deliveries.
func TestLeftoversExpire(t *testing.T) {
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	publishMany(t, s, 20)
	outcomes := together(t, s, func(b *batch) error {
		return s.deleteWebhook(b, "acct", "wh1", nil)
	}, func(b *batch) error { // a purge that has already looked for leftovers
		_, err := s.purge(b, &driver.Purge{Payloads: time.Now().Add(time.Hour), Limit: 100})
		return err
	})
	if err := errors.Join(outcomes...); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if list, err := s.EventDeliveries(t.Context(), "acct", testEvent(i, 0).ID); len(list) != 0 || err != nil {
			t.Fatalf("event %d has %+v, %v", i, list, err)
		}
	}
}

// The test runs several sweeps for a deleted webhook at once. The sweeps must not remove rows of a
// new webhook with the same ID.
func TestSweeps_Concurrent_KeepNewWebhook(t *testing.T) {
	const rounds, events = 5, 200
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		var wg sync.WaitGroup
		for i := range events {
			wg.Go(func() {
				event := testEvent(round*events+i, 10)
				if _, err := s.Enqueue(t.Context(), event); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := s.DeleteWebhook(t.Context(), "acct", "wh1", nil, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if _, err := s.Purge(t.Context(), driver.Purge{Limit: 7}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(t.Context(), testEvent(9000+round, 10)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if rows := pendingRows(t, s); rows != 1 {
			t.Fatalf("in round %d there are %d rows, want that of the last event", round, rows)
		}
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
		if err != nil || len(tasks) != 1 || tasks[0].Event.ID != testEvent(9000+round, 0).ID {
			t.Fatalf("claimed %d, %v; want the last event", len(tasks), err)
		}
		if _, err := storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{{Task: tasks[0], Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// If the webhook was deleted, the result of an attempt does not count, even if the deletion is in
// the same batch or the delivery's row still exists.
func TestSettle_WebhookDeleted_IsStale(t *testing.T) {
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	publishMany(t, s, 2)
	var refs []driver.DeliveryRef
	if err := s.eachPending(t.Context(), s.feed.Unreported(), func(_ time.Time, d driver.PendingDelivery) {
		refs = append(refs, driver.DeliveryRef{WebhookID: d.Webhook.ID, Number: d.Number})
	}); err != nil || len(refs) != 2 {
		t.Fatalf("%d are pending, %v; want 2", len(refs), err)
	}
	stale := make([]driver.Settled, 2)
	settle := func(i int) func(*batch) error {
		return func(b *batch) (err error) {
			stale[i], err = s.settle(b, []driver.AttemptResult{{
				DeliveryRef: refs[i], Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1},
			}}, nil)
			return err
		}
	}
	deletion := func(b *batch) error { return s.deleteWebhook(b, "acct", "wh1", nil) }
	if err := errors.Join(append(together(t, s, deletion, settle(0)), together(t, s, settle(1))...)...); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if len(stale[i].Stale) != 1 {
			t.Errorf("result %d counts", i)
		}
		if list, err := s.EventDeliveries(t.Context(), "acct", testEvent(i, 0).ID); len(list) != 0 || err != nil {
			t.Errorf("event %d has %+v, %v; want no delivery", i, list, err)
		}
	}
}

func mustOpen(t *testing.T, path string, options ...Option) *engine {
	t.Helper()
	s, err := open(path, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publishMany(t *testing.T, s *engine, events int) {
	t.Helper()
	var wg sync.WaitGroup
	for p := range 50 {
		wg.Go(func() {
			for i := p; i < events; i += 50 {
				if _, err := s.Enqueue(t.Context(), testEvent(i, 10)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// retrySome claims n deliveries, and postpones the deliveries to the given webhook.
func retrySome(t *testing.T, s *engine, webhook string, n int) {
	t.Helper()
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), n)
	if err != nil || len(tasks) != n {
		t.Fatalf("claimed %d, %v; want %d", len(tasks), err, n)
	}
	var settlements []storetest.Settlement
	for _, task := range tasks {
		s := storetest.Settlement{Task: task, Effect: storetest.Postpone}
		if task.Webhook.ID == webhook {
			s.Effect, s.RetryAfter, s.Attempt = driver.Retry, time.Hour, driver.Attempt{Number: 1, Status: 500}
		}
		settlements = append(settlements, s)
	}
	if stale, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); len(stale) > 0 || err != nil {
		t.Fatal(stale, err)
	}
}

// pendingRows returns the number of pending rows in the file, for all webhooks.
func pendingRows(t *testing.T, s *engine) (rows int) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		rows = tx.Bucket(schema.Pending).Stats().KeyN
		return tx.Bucket(schema.Fresh).ForEach(func(_, value []byte) error {
			m, err := record.DecodeBitmap(value)
			m.Each(func(uint64) bool { rows++; return true })
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
