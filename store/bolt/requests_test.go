package bolt

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// TestRequestsDoNotPileUp makes requests for ten days, sometimes many at once. The store must keep
// no more than a day's requests, or soon remove the others.
func TestRequestsDoNotPileUp(t *testing.T) { testbubble.Run(t, testRequestsDoNotPileUp) }

func testRequestsDoNotPileUp(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	count := func() (requests, times int) {
		err := s.db.View(func(tx *bbolt.Tx) error {
			requests, times = tx.Bucket(schema.Requests).Stats().KeyN, tx.Bucket(schema.RequestTimes).Stats().KeyN
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return requests, times
	}
	const aDay = 24
	n := 0
	begun := time.Now()
	request := func(hour int, name string) {
		time.Sleep(time.Until(begun.Add(time.Duration(hour) * time.Hour)))
		options := driver.CreateOptions{IdempotencyKey: name, IdempotencyTTL: aDay * time.Hour}
		key := driver.Key{ID: fmt.Sprint("key_", n), Account: "acct"}
		key.Hash.Sum = [32]byte{byte(n), byte(n >> 8), 1}
		n++
		if err := s.CreateKey(t.Context(), key, options); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateWebhook(t.Context(), driver.Webhook{ID: key.ID, Account: "acct"}, driver.CreateOptions{IdempotencyKey: name, IdempotencyTTL: aDay * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		request(0, fmt.Sprint("burst ", i))
	}
	for hour := range 10 * aDay {
		request(hour, fmt.Sprint(hour))
		if hour > aDay && hour%(aDay+2) == 0 {
			request(hour, fmt.Sprint(hour-aDay-1)) // repeats a request that was removed
		}
	}
	if requests, times := count(); requests > 2*(aDay+3) || times > 2*(aDay+4) || requests < 2*aDay {
		t.Errorf("%d requests and %d times are kept, want about %d", requests, times, 2*aDay)
	}
}

// TestCountsAfterAFailure checks that counts changed in an undone transaction are counted again.
func TestCountsAfterAFailure(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	one := driver.CreateOptions{MaxCount: 1}
	key := func(n byte) driver.Key {
		key := driver.Key{ID: fmt.Sprint("key_", n), Account: "acct"}
		key.Hash.Sum[0] = n
		return key
	}
	err = s.writer.Run(t.Context(), func(b *batch) error {
		s.keyCounts.of(b.Tx, "acct")
		s.keyCounts.add(b.Tx, "acct", 1)
		if err := putKey(b, key(1), driver.Key{}); err != nil {
			return err
		}
		return record.ErrCorrupt
	})
	if err != record.ErrCorrupt {
		t.Fatal(err)
	}
	if err := s.CreateKey(t.Context(), key(2), one); err != nil {
		t.Errorf("the first key: %v", err)
	}
	if err := s.CreateKey(t.Context(), key(3), one); err != apierr.ErrLimit {
		t.Errorf("the second key: %v, want ErrLimit", err)
	}
}
