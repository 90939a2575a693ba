package postgres_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// workerEnv, if set to a connection string, makes the test binary run as a worker.
// TestNodesOfTheLastRelease runs the test binaries of older releases this way, so this protocol
// must not change.
const workerEnv = "STORAGEAPI_TEST_WORKER"

// worked is the number of accounts that workers use, see endpoints.
const worked = 8

func workedAccount(i int) string { return fmt.Sprintf("acct_wh_%06d", i%worked) }

// workAs uses all parts of a store until ctx ends: it publishes, claims and settles; creates,
// verifies, rotates, lists and deletes keys; lists deliveries and changes webhooks. It calls tell
// for each acknowledged event; the event ids contain name. It returns after any error.
func workAs(ctx context.Context, s *postgres.Store, name string, tell func(account, event string)) error {
	for i := 0; ctx.Err() == nil; i++ {
		if err := workOnce(context.WithoutCancel(ctx), s, name, i, tell); err != nil {
			return fmt.Errorf("%s, round %d: %w", name, i, err)
		}
	}
	return nil
}

func workOnce(ctx context.Context, s *postgres.Store, name string, i int, tell func(account, event string)) error {
	account, id := workedAccount(i), fmt.Sprintf("%s_%d", name, i)
	event := driver.EncodedEvent{ID: id, Account: account, Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte("{}")}
	if n, err := s.Enqueue(ctx, event); err != nil || n != 1 {
		return fmt.Errorf("Enqueue = %d, %w", n, err)
	}
	tell(account, id)
	if list, err := s.EventDeliveries(ctx, account, id); err != nil || len(list) != 1 {
		return fmt.Errorf("EventDeliveries = %d, %w", len(list), err)
	}
	tasks, err := storetest.WorkerOf(s).Claim(ctx, 4)
	if err != nil {
		return fmt.Errorf("Claim: %w", err)
	}
	var settlements []storetest.Settlement
	for _, task := range tasks {
		outcome := driver.Deliver
		if task.Attempt == 1 && i%4 == 0 {
			outcome = driver.Retry
		}
		settlements = append(settlements, storetest.Settlement{
			Task: task, Effect: outcome, RetryAfter: time.Millisecond, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 200},
		})
	}
	if stale, err := storetest.WorkerOf(s).Settle(ctx, settlements); err != nil || len(stale) > 0 {
		return fmt.Errorf("Settle = %v, %w", stale, err)
	}
	if _, err := s.ListDeliveries(ctx, account, account[len("acct_"):], driver.DeliveryQuery{Limit: 10, Failed: i%2 == 0}); err != nil {
		return fmt.Errorf("ListDeliveries: %w", err)
	}
	if _, err := s.UpdateWebhook(ctx, account, account[len("acct_"):], func(w *driver.Webhook, _ *audit.Entry) error { w.Threshold++; return nil }); err != nil {
		return fmt.Errorf("UpdateWebhook: %w", err)
	}
	return rotateOnce(ctx, s, account, id, i)
}

func rotateOnce(ctx context.Context, s *postgres.Store, account, id string, i int) error {
	first, second := driver.Hash{Sum: sha256.Sum256([]byte(id))}, driver.Hash{Sum: sha256.Sum256([]byte(id + "'"))}
	key := driver.Key{ID: id, Account: account, Name: "key", Scopes: scopes.Specified(), CreatedAt: time.Now(), Hash: first}
	if err := s.CreateKey(ctx, key, driver.CreateOptions{}); err != nil {
		return fmt.Errorf("CreateKey: %w", err)
	}
	if _, err := s.UpdateKey(ctx, account, id, func(k *driver.Key, _ *audit.Entry) error {
		k.Hash, k.Previous, k.PreviousExpiresAt = second, first, time.Now().Add(time.Hour)
		return nil
	}); err != nil {
		return fmt.Errorf("UpdateKey: %w", err)
	}
	for _, hash := range []driver.Hash{first, second} {
		if found, err := s.KeyByHash(ctx, hash); err != nil || found.ID != id || found.Hash != second {
			return fmt.Errorf("KeyByHash = %s, %w", found.ID, err)
		}
	}
	if list, err := s.ListKeys(ctx, account, driver.ListQuery{Limit: 10}); err != nil || len(list) == 0 {
		return fmt.Errorf("ListKeys = %d, %w", len(list), err)
	}
	if i%2 > 0 {
		return nil
	}
	if err := s.DeleteKey(ctx, account, id, nil, audit.Entry{}); err != nil {
		return fmt.Errorf("DeleteKey: %w", err)
	}
	if _, err := s.KeyByHash(ctx, second); !errors.Is(err, apierr.ErrNotFound) {
		return fmt.Errorf("KeyByHash of a deleted key: %w", err)
	}
	return nil
}

// runWorker works until standard input ends, and prints the acknowledged events.
func runWorker(dsn string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := postgres.Open(ctx, dsn)
	for i := 0; err == nil && i < worked; i++ {
		account := workedAccount(i)
		if err = s.CreateWebhook(ctx, newWebhook(account, account[len("acct_"):]), driver.CreateOptions{}); errors.Is(err, apierr.ErrExists) {
			err = nil // another worker has done it
		}
	}
	if err == nil {
		err = workAs(ctx, s, fmt.Sprintf("process_%d", os.Getpid()), func(account, event string) { fmt.Println(account, event) })
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// startWorker starts a process of a test binary as a worker, and returns once the worker has
// acknowledged an event. The result end stops the worker and returns its error.
func startWorker(t *testing.T, binary, dsn string, tell func(account, event string)) (end func() error) {
	t.Helper()
	process := exec.Command(binary)
	process.Env = append(os.Environ(), workerEnv+"="+dsn)
	process.Stderr = os.Stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill() })
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		first := true
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var account, event string
			if n, _ := fmt.Sscan(lines.Text(), &account, &event); n == 2 {
				tell(account, event)
			}
			if first {
				close(began)
				first = false
			}
		}
	}()
	select {
	case <-began:
	case <-ended:
		t.Fatalf("the worker did not start: %v", process.Wait())
	}
	return func() error {
		_ = stdin.Close()
		<-ended
		return process.Wait()
	}
}
