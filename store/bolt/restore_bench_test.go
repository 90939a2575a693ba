package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// BenchmarkRestore restores a file with 200,000 pending deliveries for 100 webhooks. In the
// abandoned file, half of them have been delivered since the backup, and as many new events have
// been published.
func BenchmarkRestore(b *testing.B) {
	if testing.Short() {
		b.Skip("publishes 200,000 deliveries")
	}
	const hooks, events = 100, 2000
	dir := b.TempDir()
	abandoned, backup := filepath.Join(dir, "abandoned.db"), filepath.Join(dir, "backup.db")
	s, err := bolt.Open(abandoned)
	noError(b, err)
	for i := range hooks {
		id := fmt.Sprintf("wh_%06d", i)
		noError(b, s.CreateWebhook(b.Context(), driver.Webhook{
			ID: id, Account: "acct", URL: "https://example.com/" + id, WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow}, Secret: signing.NewSecret(),
		}, driver.CreateOptions{}))
	}
	publish := func(n int) {
		for i := range n {
			_, err := s.Enqueue(b.Context(), driver.EncodedEvent{ID: fmt.Sprintf("evt_%d_%d", n, i), Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, 256)})
			noError(b, err)
		}
	}
	publish(events)
	copied, err := os.Create(backup)
	noError(b, err)
	_, err = s.Backup(b.Context(), copied)
	noError(b, err)
	noError(b, copied.Close())
	for range hooks * events / 2 / 1000 {
		tasks, err := storetest.WorkerOf(s).Claim(b.Context(), 1000)
		noError(b, err)
		var settled []storetest.Settlement
		for _, task := range tasks {
			settled = append(settled, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1, StartedAt: time.Now(), Status: 200}})
		}
		_, err = storetest.WorkerOf(s).Settle(b.Context(), settled)
		noError(b, err)
	}
	publish(events + 1)
	noError(b, s.Close())
	for name, fence := range map[string]boltops.Fence{"by lists": {NothingRevoked: true}, "from the abandoned file": {Abandoned: abandoned}} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				path := filepath.Join(dir, "storage.db")
				_, err := boltops.Restore(path, backup, fence)
				noError(b, err)
				noError(b, os.Remove(path))
			}
		})
	}
}
