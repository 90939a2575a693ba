package bolt

import (
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// TestFirstAttempts settles deliveries of one segment out of order, in batches of several sizes.
// Many first attempts are packed. Reads must return every attempt, except first attempts that are
// not among the delivery's last MaxAttempts.
func TestFirstAttempts(t *testing.T) {
	const events = 20
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var steps []func(*batch) error
	for i := range events {
		p := newTestEvent(s, testEvent(i, 10))
		steps = append(steps, func(b *batch) error { _, _, err := s.enqueue(b, p, ""); return err })
	}
	if err := errors.Join(together(t, s, steps...)...); err != nil {
		t.Fatal(err)
	}
	claim := func() []storetest.Task {
		t.Helper()
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), events)
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	settle := func(outcome driver.Effect, tasks ...storetest.Task) {
		t.Helper()
		var settlements []storetest.Settlement
		for _, task := range tasks {
			settlement := settlementOf(task, outcome)
			settlement.RetryAfter = 0
			settlements = append(settlements, settlement)
		}
		if stale, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil || len(stale) > 0 {
			t.Fatal(stale, err)
		}
	}
	want := func(event, attempts int, state driver.DeliveryState) {
		t.Helper()
		list, err := s.EventDeliveries(t.Context(), "acct", testEvent(event, 0).ID)
		if err != nil || len(list) != 1 || list[0].State != state || len(list[0].Attempts) != attempts {
			t.Errorf("event %d: %v, %v; want %s after %d attempts", event, list, err, state, attempts)
		}
	}
	tasks := claim()
	odd, even := []storetest.Task{}, []storetest.Task{}
	for i, task := range tasks[3:] {
		if i%2 == 0 {
			odd = append(odd, task)
		} else {
			even = append(even, task)
		}
	}
	settle(driver.GiveUp, even...)
	settle(driver.Deliver, odd...)
	settle(driver.Deliver, tasks[2])
	settle(driver.Retry, tasks[:2]...)
	err = s.db.View(func(tx *bbolt.Tx) error {
		packs, last := tx.Bucket(schema.FirstAttempts).Stats().KeyN, tx.Bucket(schema.LastAttempts).Stats().KeyN
		if packs != 2 || last != 3 {
			t.Errorf("there are %d packs and %d other attempts, want 2 and 3", packs, last)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	want(0, 1, driver.Pending)
	want(2, 1, driver.Delivered)
	for i := 3; i < events; i++ {
		state := driver.Delivered
		if i%2 == 0 {
			state = driver.Dead
		}
		want(i, 1, state)
	}

	settle(driver.GiveUp, claim()...)
	if err := s.Redeliver(t.Context(), "acct", "wh1", testEvent(4, 0).ID, audit.Entry{}); err != nil {
		t.Fatal(err)
	}
	for range driver.MaxAttempts - 1 {
		settle(driver.Retry, claim()...)
	}
	want(4, driver.MaxAttempts, driver.Pending)
	settle(driver.Deliver, claim()...)
	want(4, driver.MaxAttempts, driver.Delivered)
}
