package bolt

import (
	"bytes"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

var yearEvents = flag.Int("events", 36_500, "how many events TestYear publishes in its year")

// TestYear simulates a year. Every day it publishes events, reports files, and purges expired data
// as a service with the default retention does. Deliveries succeed, are given up or are skipped.
// Once the file holds a full retention period of data, neither the file nor its free pages may
// grow.
func TestYear(t *testing.T) {
	t.Parallel()
	const lanes, publishers = 20, 64
	path := filepath.Join(t.TempDir(), "year.db")
	body := bytes.Repeat([]byte("0123456789abcdef"), 16)
	testbubble.Run(t, func(t *testing.T) {
		s, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		for i := range lanes {
			err := s.CreateWebhook(t.Context(), driver.Webhook{
				ID: fmt.Sprintf("wh_%02d", i), Account: fmt.Sprintf("acct_%02d", i), URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: i > 0},
				Events: []driver.EventType{alerts.TypeBalanceLow}, Secret: signing.NewSecret(),
			}, driver.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		size := func() (bytes int64) { // up to the last used page, because the file grows by 16 MiB
			if err := s.db.View(func(tx *bbolt.Tx) error { bytes = tx.Size(); return nil }); err != nil {
				t.Fatal(err)
			}
			return bytes
		}
		var settled, largest int64 // size after 120 days, and the largest size later
		for day := range 365 {
			var wg sync.WaitGroup
			for p := range publishers {
				wg.Go(func() {
					for n := p; n < *yearEvents/365; n += publishers {
						_, err := s.Enqueue(t.Context(), driver.EncodedEvent{
							ID: fmt.Sprintf("evt_%03d_%06d", day, n), Account: fmt.Sprintf("acct_%02d", n%lanes),
							Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: body,
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			tellOf(t, s, *yearEvents/3650)
			deliverAll(t, s)
			time.Sleep(24 * time.Hour)
			purgeAll(t, s)
			if day%30 == 29 {
				t.Logf("day %3d: %6.1f MiB, of which %5.1f free", day+1, float64(size())/(1<<20), freeMiB(s))
			}
			if day == 120 {
				settled = size()
			}
			largest = max(largest, size())
		}
		if largest > settled*5/4 {
			t.Errorf("the file grew from %d bytes after 120 days to %d", settled, largest)
		}
		if free := int64(freeMiB(s) * (1 << 20)); free > size()/4 {
			t.Errorf("%d of %d bytes are free pages", free, size())
		}
	})
}

// tellOf reports the given number of files, which expire in a week.
func tellOf(t *testing.T, s *engine, files int) {
	event := driver.EncodedEvent{
		ID: fmt.Sprintf("evt_%x", time.Now().UnixNano()), Account: "acct_00", Type: alerts.TypeFilesExpiring, Timestamp: time.Now(),
	}
	var dedupKeys []driver.DedupKey
	for i := range files {
		dedupKeys = append(dedupKeys, driver.DedupKey{Key: fmt.Sprintf("file_%026d", i), Until: time.Now().AddDate(0, 0, 7)})
	}
	if _, err := s.EnqueueOnce(t.Context(), event, dedupKeys); err != nil {
		t.Fatal(err)
	}
}

// deliverAll settles the due deliveries. Most of them succeed, one in ten is given up.
func deliverAll(t *testing.T, s *engine) {
	for {
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) == 0 {
			return
		}
		settlements := make([]storetest.Settlement, len(tasks))
		for i, task := range tasks {
			outcome := driver.Deliver
			if task.Ref.Number%10 == 0 {
				outcome = driver.GiveUp
			}
			settlements[i] = storetest.Settlement{Task: task, Effect: outcome, Attempt: driver.Attempt{
				Number: task.Attempt, StartedAt: time.Now(), Duration: time.Millisecond, Status: 200, Response: "thank you",
			}}
		}
		if _, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil {
			t.Fatal(err)
		}
	}
}

// purgeAll does the work that a service does every minute.
func purgeAll(t *testing.T, s *engine) {
	now := time.Now()
	for more := true; more; {
		var err error
		more, err = s.Purge(t.Context(), driver.Purge{
			Payloads: now.AddDate(0, 0, -30), Attempts: now.AddDate(0, 0, -90), EventIDs: now.AddDate(0, 0, -90),
			DedupKeys: now.AddDate(0, 0, -1), Limit: 1000,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// freeMiB returns the size of the file's free pages in MiB.
func freeMiB(s *engine) float64 { return float64(s.parking.FreeBytes()) / (1 << 20) }
