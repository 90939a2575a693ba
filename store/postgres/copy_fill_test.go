package postgres_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// A load is the size of the data that fillStore adds to a store: the total numbers of records,
// which are spread over the accounts.
type load struct{ accounts, keys, settled, pending int }

func loadAccount(i int) string { return fmt.Sprintf("acct_%06d", i) }

func loadEvent(i int) string { return fmt.Sprintf("evt_%08d", i) }

func loadHash(i int) driver.Hash {
	return driver.Hash{Sum: sha256.Sum256(fmt.Append(nil, "key ", i))}
}

func loadPrevious(i int) driver.Hash {
	return driver.Hash{Sum: sha256.Sum256(fmt.Append(nil, "previous ", i))}
}

// fillStore fills a store. Every tenth key has a previous value that is still valid, every account
// has a webhook, and every event has a body of 250 bytes.
func fillStore(t testing.TB, s store.Store, l load) {
	t.Helper()
	now := time.Now()
	places := make([]int, l.keys) // ordered by hash, as in a file
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { x, y := loadHash(a).Sum, loadHash(b).Sum; return slices.Compare(x[:], y[:]) })
	atOnce(t, l.keys, func(n int) error {
		i := places[n]
		key := driver.Key{
			ID: fmt.Sprintf("key_%08d", i), Account: loadAccount(i % l.accounts), Name: "a key of some service", Scopes: scopes.Of(scopes.FilesRead, scopes.FilesWrite),
			CreatedAt: now, Hash: loadHash(i),
		}
		if i%10 == 0 {
			key.Previous, key.PreviousExpiresAt = loadPrevious(i), now.Add(24*time.Hour)
		}
		return s.CreateKey(context.Background(), key, driver.CreateOptions{})
	})
	atOnce(t, l.accounts, func(i int) error {
		return s.CreateWebhook(context.Background(), driver.Webhook{
			ID: fmt.Sprintf("wh_%06d", i), Account: loadAccount(i), URL: "https://example.com/hook", Events: []driver.EventType{alerts.TypeBalanceLow},
			WebhookHealth: driver.WebhookHealth{Active: true}, Secret: signing.NewSecret(), CreatedAt: now,
		}, driver.CreateOptions{})
	})
	body := fmt.Appendf(nil, `{"data":"%0240d"}`, 0)
	enqueue := func(from, n int) {
		atOnce(t, n, func(i int) error {
			_, err := s.Enqueue(context.Background(), driver.EncodedEvent{
				ID: loadEvent(from + i), Account: loadAccount(i % l.accounts), Type: alerts.TypeBalanceLow, Timestamp: now, Body: body,
			})
			return err
		})
	}
	enqueue(0, l.settled)
	for done := 0; done < l.settled; {
		tasks, err := storetest.WorkerOf(s).Claim(context.Background(), 5000)
		var settlements []storetest.Settlement
		for _, task := range tasks {
			settlements = append(settlements, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{
				Number: task.Attempt, StartedAt: now, Duration: 20 * time.Millisecond, Status: 200, Response: "OK",
			}})
		}
		if err == nil {
			_, err = storetest.WorkerOf(s).Settle(context.Background(), settlements)
		}
		if err != nil {
			t.Fatal(err)
		}
		done += len(tasks)
	}
	enqueue(l.settled, l.pending)
}

// atOnce calls do for each number below n, with many calls at a time and roughly in order.
func atOnce(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, 512) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
