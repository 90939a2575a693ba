package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// A step sees the rows that earlier steps of the same commit keep in memory, even if these rows
// fill several segments.
func TestBatch_LaterStep_SeesEarlierRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // the first webhook is inactive
		if err := s.CreateWebhook(t.Context(), testWebhook(i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const events = 5
	var pending []int
	var steps []func(*batch) error
	then := func(do func(*batch) error) { steps = append(steps, do) }
	enqueue := func(i int) {
		p := newTestEvent(s, testEvent(i, record.MaxSegmentBodies/2))
		then(func(b *batch) error {
			n, _, err := s.enqueue(b, p, "")
			pending = append(pending, n)
			return err
		})
	}
	for i := range events {
		enqueue(i)
	}
	enqueue(0) // publishes the first event again
	enqueue(events - 1)
	then(func(b *batch) error { // redelivers the skipped delivery
		return s.redeliver(b, "acct", "wh0", testEvent(events-1, 0).ID)
	})
	then(func(b *batch) error { return s.deleteWebhook(b, "acct", "wh2", nil) })
	for i, err := range together(t, s, steps...) {
		if err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if got := fmt.Sprint(pending); got != "[2 2 2 2 2 2 2]" {
		t.Errorf("%v were pending", got)
	}
	for range 2 { // the second round reads the file
		for i := range events {
			list, err := s.EventDeliveries(t.Context(), "acct", testEvent(i, 0).ID)
			states := map[string]driver.DeliveryState{}
			for _, d := range list {
				states[d.WebhookID] = d.State
			}
			want := map[string]driver.DeliveryState{"wh0": driver.Skipped, "wh1": driver.Pending}
			if i == events-1 {
				want["wh0"] = driver.Pending
			}
			if fmt.Sprint(states) != fmt.Sprint(want) || err != nil {
				t.Errorf("event %d: %v, %v; want %v", i, states, err, want)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = open(path); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = s.Close() }()
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 99)
	if err != nil || len(tasks) != events {
		t.Fatalf("%d tasks, %v; want %d: that of an inactive webhook is not claimed", len(tasks), err, events)
	}
	for _, task := range tasks {
		if task.Err != nil || task.Webhook.ID != "wh1" || len(task.Event.Body) != record.MaxSegmentBodies/2 {
			t.Errorf("claimed %s to %s with %d bytes, %v", task.Event.ID, task.Webhook.ID, len(task.Event.Body), task.Err)
		}
	}
}

// The test checks that a purge ends a delivery that became pending in an earlier step of the same
// batch. If that batch is undone, the next batch must purge the delivery again.
func TestBatch_Purge_EndsDeliveryOfEarlierStep(t *testing.T) {
	s := openTemp(t)
	for i := range 2 { // the first webhook is inactive
		if err := s.CreateWebhook(t.Context(), testWebhook(i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	event := testEvent(1, 100)
	if _, err := s.Enqueue(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	purge := driver.Purge{Payloads: time.Now().Add(time.Minute), Limit: 99}
	failed := errors.New("failed")
	outcomes := together(t, s,
		func(b *batch) error {
			return s.redeliver(b, "acct", "wh0", event.ID)
		},
		func(b *batch) error {
			_, err := s.purge(b, &purge)
			return err
		},
		func(b *batch) error { return errors.Join(failed, b.Put(schema.Meta, []byte("x"), nil)) },
	)
	if outcomes[0] != nil || outcomes[1] != nil || !errors.Is(outcomes[2], failed) {
		t.Error(outcomes)
	}
	list, err := s.EventDeliveries(t.Context(), "acct", event.ID)
	if err != nil || len(list) != 2 || list[0].State != driver.Dead || list[1].State != driver.Dead {
		t.Errorf("%+v, %v; want two that are dead", list, err)
	}
	if got, err := storetest.WorkerOf(s).Backlog(t.Context(), ""); got != (driver.Backlog{}) || err != nil {
		t.Errorf("Backlog = %+v, %v", got, err)
	}
}

// A claim returns the version of the webhook that readers of the file see, even if claims earlier
// in the same commit returned the old version.
func TestClaim_DuringCommit_ReturnsVisibleWebhook(t *testing.T) {
	s := openTemp(t)
	webhook := testWebhook(1)
	if err := s.CreateWebhook(t.Context(), webhook, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := s.Enqueue(t.Context(), testEvent(i, 100)); err != nil {
			t.Fatal(err)
		}
	}
	before, after := webhook.URL, "https://after.example.com/"
	claim := func(want string) {
		t.Helper()
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1)
		if err != nil || len(tasks) != 1 {
			t.Fatalf("%d tasks, %v; want one", len(tasks), err)
		}
		if got := tasks[0].Webhook.URL; got != want {
			t.Errorf("claimed for %s, want %s", got, want)
		}
	}
	claim(before)
	if err := s.writer.Run(t.Context(), func(b *batch) error {
		b.AfterCommit(func() { claim(after) }) // this function runs first
		webhook.URL = after
		if err := s.putWebhook(b, &webhook); err != nil {
			return err
		}
		claim(before)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	claim(after)
}

// If a purge fails, the deliveries that it would have ended can still be claimed.
func TestPurge_Fails_DeliveriesStayClaimable(t *testing.T) {
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), testEvent(1, 100)); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(schema.Attempts) }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), driver.Purge{Payloads: time.Now().Add(time.Minute), Limit: 99}); err == nil {
		t.Error("the purge did not fail")
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 99)
	if err != nil || len(tasks) != 1 {
		t.Errorf("%d tasks, %v; want one", len(tasks), err)
	}
}

// If a step fails, the event that it published is removed, even from memory that the next batch
// reuses.
func TestBatch_Undone_EventIsGone(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	err = s.writer.Run(t.Context(), func(b *batch) error {
		if _, _, err := s.enqueue(b, newTestEvent(s, testEvent(1, 100)), ""); err != nil {
			return err
		}
		return failed
	})
	if err != failed {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1} { // first the same ID, then a different one
		if n, err := s.Enqueue(t.Context(), testEvent(1+i, 100)); n != want || err != nil {
			t.Errorf("Enqueue = %d, %v", n, err)
		}
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 99)
	if err != nil || len(tasks) != 2 {
		t.Errorf("%d tasks, %v; want 2", len(tasks), err)
	}
}

// The test publishes an event for a webhook, deletes the webhook and creates it again, in one
// batch. The new webhook must be created only after the rows of the event's delivery have been
// removed, and must not get the event.
func TestBatch_WebhookDeletedAndRecreated_GetsNoOldEvent(t *testing.T) {
	testbubble.Run(t, testWebhookMadeAgainInABatch)
}

func testWebhookMadeAgainInABatch(t *testing.T) {
	s := openTemp(t)
	create := func(i int) error { return s.CreateWebhook(t.Context(), testWebhook(i), driver.CreateOptions{}) }
	enqueue := func(i int) error { _, err := s.Enqueue(t.Context(), testEvent(i, 10)); return err }
	for i := range 2 {
		if err := create(1 + i); err != nil {
			t.Fatal(err)
		}
	}
	var done sync.WaitGroup
	begun, end := make(chan bool), make(chan bool)
	done.Go(func() {
		_ = s.writer.Run(t.Context(), func(*batch) error { close(begun); <-end; return nil })
	})
	<-begun
	for _, do := range []func() error{
		func() error { return enqueue(1) },
		func() error { return s.DeleteWebhook(t.Context(), "acct", "wh1", nil, audit.Entry{}) },
		func() error { return create(1) },
		func() error { return enqueue(2) },
	} {
		done.Go(func() {
			if err := do(); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // until the goroutine waits for the commit
	}
	close(end)
	done.Wait()
	if err := enqueue(3); err != nil {
		t.Fatal(err)
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, task := range tasks {
		got = append(got, task.Event.ID+" "+task.Webhook.ID)
	}
	slices.Sort(got)
	if want := []string{"evt0001 wh2", "evt0002 wh2", "evt0003 wh1", "evt0003 wh2"}; !slices.Equal(got, want) {
		t.Errorf("claimed %q, want %q", got, want)
	}
}

func newTestEvent(s *engine, encoded driver.EncodedEvent) *eventlog.Event {
	return s.log.NewEvent(&encoded)
}
