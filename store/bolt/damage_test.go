package bolt

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test overwrites the first page of each bucket in turn, and uses the file. bbolt panics on
// such pages; the store must return errors.
func TestDamagedPages_ReturnErrors(t *testing.T) {
	t.Parallel()
	good := filepath.Join(t.TempDir(), "good.db")
	key := fillFile(t, good)
	file, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range [][]byte{schema.Keys, schema.Accounts, schema.Webhooks, schema.Events, schema.Fresh} {
		t.Run(string(bucket), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			damagePage(t, path, bucket)

			s, err := open(path)
			if err != nil {
				t.Logf("Open: %v", err) // an error is acceptable, too
				return
			}
			use := map[string]error{}
			_, use["KeyByHash"] = s.KeyByHash(t.Context(), key.Hash)
			_, use["KeyByID"] = s.KeyByID(t.Context(), "acct", key.ID)
			_, use["ListKeys"] = s.ListKeys(t.Context(), "acct", driver.ListQuery{Limit: 9})
			_, use["WebhookByID"] = s.WebhookByID(t.Context(), "acct", "wh")
			_, use["ListWebhooks"] = s.ListWebhooks(t.Context(), "acct", driver.ListQuery{Limit: 9})
			_, use["EventDeliveries"] = s.EventDeliveries(t.Context(), "acct", "e1")
			_, use["Enqueue"] = s.Enqueue(t.Context(), driver.EncodedEvent{ID: "new", Account: "acct", Type: alerts.TypeBalanceLow})
			tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
			use["Claim"] = err
			var settlements []storetest.Settlement
			for _, task := range tasks {
				settlements = append(settlements, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1}})
			}
			_, use["Settle"] = storetest.WorkerOf(s).Settle(t.Context(), settlements)
			for method, err := range use {
				if err != nil {
					t.Logf("%s: %v", method, err)
				}
			}
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Error("Close hangs: a transaction was not ended")
			}
		})
	}
}

// fillFile writes more rows than fit into the page of the parent bucket, and returns one of the
// keys.
func fillFile(t *testing.T, path string) (key driver.Key) {
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for i := range 300 {
		key = driver.Key{ID: fmt.Sprint("key", i), Account: "acct", Scopes: scopes.Specified()}
		key.Hash.Sum[0], key.Hash.Sum[1] = byte(i), byte(i>>8)+1
		if err := s.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		err := s.CreateWebhook(t.Context(), driver.Webhook{
			ID: fmt.Sprint("wh", i), Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: i == 0},
			Events: []driver.EventType{alerts.TypeBalanceLow},
		}, driver.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint("e", i), Account: "acct", Type: alerts.TypeBalanceLow})
		if err != nil {
			t.Fatal(err)
		}
	}
	return key
}

// damagePage overwrites the flags of a bucket's root page.
func damagePage(t *testing.T, path string, bucket []byte) {
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	page, size := uint64(tx.Bucket(bucket).Root()), s.db.Info().PageSize
	_ = tx.Rollback()
	_ = s.Close()
	if page == 0 {
		t.Fatal("the bucket has no page of its own")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt([]byte{0xff, 0xff}, int64(page)*int64(size)+8); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedPendingRecordStartsOver checks that an unreadable pending record counts as a delivery
// without attempts.
func TestDamagedPendingRecordStartsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	err = s.CreateWebhook(t.Context(), driver.Webhook{
		ID: "wh", Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true},
		Events: []driver.EventType{alerts.TypeBalanceLow},
	}, driver.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "e", Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
		t.Fatal(err)
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 9)
	if err != nil || len(tasks) != 1 {
		t.Fatalf("claimed %v, %v", tasks, err)
	}
	if _, err := storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{settlementOf(tasks[0], driver.Retry)}); err != nil {
		t.Fatal(err)
	}
	err = s.writer.Run(t.Context(), func(b *batch) error {
		row, _ := b.tx.Bucket(schema.Pending).Cursor().First()
		return b.Put(schema.Pending, append([]byte(nil), row...), (&record.Pending{Due: time.Now().Add(time.Hour), Attempts: 1 << 31}).Encode())
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = open(path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tasks, err = storetest.WorkerOf(s).Claim(t.Context(), 9)
	if err != nil || len(tasks) != 1 || tasks[0].Attempt != 1 {
		t.Errorf("claimed %v, %v; want the first attempt, now", tasks, err)
	}
}

// TestFlippedBytes damages a file that was not closed. Open and the store's methods may return
// errors, but must not panic or end the process, even if damaged data points outside the file.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateWebhook(t.Context(), driver.Webhook{
		ID: "wh", Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow},
	}, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := s.Enqueue(t.Context(), flippedEvent(i)); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(path) // read while open, as if the process were killed
	if err != nil {
		t.Fatal(err)
	}
	pageSize := s.db.Info().PageSize
	used := len(file) / pageSize
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused := 0
	path = filepath.Join(t.TempDir(), "damaged.db")
	for page := 2; page < used; page++ {
		if binary.NativeEndian.Uint64(file[page*pageSize:]) != uint64(page) {
			continue // part of the previous page, which overflows
		}
		for _, at := range []int{8, 10, 20, 24, 27} { // page flags, count; position and sizes of the first element
			damaged := append([]byte(nil), file...)
			if damaged[page*pageSize+at] ^= 0xff; at == 10 {
				damaged[page*pageSize+at] = 0
			}
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := open(path)
			if err != nil {
				refused++
				continue
			}
			_, _ = s.Enqueue(t.Context(), flippedEvent(100))
			now := time.Now().Add(time.Second)
			_, _ = s.Purge(t.Context(), driver.Purge{Payloads: now, Attempts: now, EventIDs: now, Limit: 1000})
			_ = s.Close()
		}
	}
	if refused == 0 {
		t.Error("no damage was met")
	}
}

func flippedEvent(i int) driver.EncodedEvent {
	return driver.EncodedEvent{
		ID: fmt.Sprintf("evt_%026d", i), Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: make([]byte, 64<<10),
	}
}
