package bolt

import (
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// One commit stores events with different publication times, and the test purges attempts older
// than a time in between. Lists must never show a delivery in the state that it had before its last
// attempt.
func TestPurge_RetentionEndsWithinSegment_DeliveryKeepsItsState(t *testing.T) {
	const events = 8 // their first attempts are packed
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var steps []func(*batch) error
	for i := range events {
		e := newTestEvent(s, testEvent(i, 10))
		steps = append(steps, func(b *batch) error {
			time.Sleep(3 * time.Millisecond)
			_, _, err := s.enqueue(b, e, "")
			return err
		})
	}
	if err := errors.Join(together(t, s, steps...)...); err != nil {
		t.Fatal(err)
	}
	settle := func(outcome driver.Effect) {
		t.Helper()
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), events)
		if err != nil || len(tasks) != events {
			t.Fatalf("got %d tasks, %v, want %d", len(tasks), err, events)
		}
		var list []storetest.Settlement
		for _, task := range tasks {
			list = append(list, settlementOf(task, outcome))
		}
		if _, err := storetest.WorkerOf(s).Settle(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	settle(driver.GiveUp)
	for i := range events {
		if err := s.Redeliver(t.Context(), "acct", "wh1", testEvent(i, 0).ID, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	settle(driver.Deliver)
	list := s.list(t, "wh1", driver.DeliveryQuery{Limit: events})
	border := list[len(list)/2].PublishedAt
	if !list[len(list)-1].PublishedAt.Before(border) {
		t.Fatal("coverage precondition failed: the events were published at the same time")
	}
	for more := true; more; {
		var err error
		if more, err = s.Purge(t.Context(), driver.Purge{Payloads: border, Attempts: border, Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range s.list(t, "wh1", driver.DeliveryQuery{Limit: events}) {
		if d.State != driver.Delivered {
			t.Errorf("got %s %s after the purge, want %s", d.EventID, d.State, driver.Delivered)
		}
	}
}
