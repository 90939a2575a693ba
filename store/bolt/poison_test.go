package bolt_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test damages an event and a webhook in the file. Claims must return the affected tasks with
// an error. It must be possible to settle these tasks as dead, and they must not delay other tasks.
func TestDamagedRecord_DoesNotBlockOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s := openUnverified(t, path)
	for _, id := range []string{"wh_good", "wh_bad"} {
		err := s.CreateWebhook(t.Context(), driver.Webhook{
			ID: id, Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true},
			Events: []driver.EventType{alerts.TypeBalanceLow}, Secret: signing.NewSecret(),
		}, driver.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"evt_bad", "evt_good"} {
		_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, path)

	s = openUnverified(t, path)
	defer func() { _ = s.Close() }()
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var settlements []storetest.Settlement
	good := 0
	for _, task := range tasks {
		outcome := driver.GiveUp
		if task.Err == nil {
			good++
			outcome = driver.Deliver
		}
		settlements = append(settlements, storetest.Settlement{
			Task: task, Effect: outcome, Attempt: driver.Attempt{Number: task.Attempt},
		})
	}
	if len(tasks) != 4 || good != 1 {
		t.Errorf("claimed %d tasks, %d of them good; want 4 and 1", len(tasks), good)
	}
	if stale, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil || len(stale) > 0 {
		t.Errorf("Settle = %v, %v", stale, err)
	}
	deliveries, err := s.EventDeliveries(t.Context(), "acct", "evt_good")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deliveries {
		want := driver.Delivered
		if d.WebhookID == "wh_bad" {
			want = driver.Dead
		}
		if d.State != want {
			t.Errorf("%s is %s, want %s", d.WebhookID, d.State, want)
		}
	}
}

// damage gives the records of the first event and of the webhook "wh_bad" an invalid version.
func damage(t *testing.T, path string) {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte("events"))
		first, value := events.Cursor().First()
		at := len(value) - len("\x01"+"published at"+"\x00"+"\x0bbalance.low"+"\x07evt_bad"+"\x04acct"+"end1"+"end2"+"many")
		value = bytes.Clone(value)
		value[at] = 255
		if err := events.Put(first, value); err != nil {
			return err
		}
		return tx.Bucket([]byte("webhooks")).Put([]byte("\x04acctwh_bad"), []byte{255})
	})
	if err != nil {
		t.Fatal(err)
	}
}
