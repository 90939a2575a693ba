package bolt_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

var (
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC}
	errDisk = syscall.EIO
)

// TestFailingCommits makes commits fail in all possible ways.
func TestFailingCommits(t *testing.T) {
	t.Parallel()
	for name, around := range map[string]func(commit func() error) error{
		"full disk": func(func() error) error { return errFull },
		"full disk, now and then": func(commit func() error) error {
			if rand.N(3) == 0 {
				return errFull
			}
			return commit()
		},
		"a sync of data fails": func(func() error) error { return errDisk },
		"the last sync fails":  func(commit func() error) error { return errors.Join(commit(), errDisk) },
		"the disk hangs, and then fails": func(func() error) error {
			time.Sleep(40 * time.Millisecond)
			return errDisk
		},
		"the disk hangs, and then the last sync fails": func(commit func() error) error {
			time.Sleep(40 * time.Millisecond)
			return errors.Join(commit(), errDisk)
		},
		"bbolt panics":                    func(func() error) error { panic("damaged") },
		"bbolt panics after it committed": func(commit func() error) error { _ = commit(); panic("damaged") },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunFailing(t, func(t *testing.T) storetest.FailingStore { return failingStore(t, around) })
		})
	}
}

func failingStore(t *testing.T, around func(commit func() error) error) storetest.FailingStore {
	dir := t.TempDir()
	var disk boltfault.Disk
	s := openWith(t, dir, disk.Option)
	return storetest.FailingStore{
		Store: s,
		Fail:  func() { disk.Around(around) },
		Mend: func() store.Store {
			disk.Around(nil)
			err := s.DeleteKey(t.Context(), "nobody", "nothing", nil, audit.Entry{})
			if !errors.Is(err, store.ErrReadOnly) && !errors.Is(err, store.ErrClosed) {
				return s
			}
			_ = s.Close()
			again, err := bolt.Open(filepath.Join(dir, "storage.db"))
			if err != nil {
				t.Fatal(err)
			}
			return again
		},
	}
}

// After a failed sync, a store must not write or claim, but must still return data. After it is
// closed and opened again, it must write again.
func TestFailedSync_StopsWritesUntilReopened(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	var disk boltfault.Disk
	s := openWith(t, dir, disk.Option).(*bolt.Store)
	key := driver.Key{ID: "key", Account: "acct", Hash: driver.Hash{Sum: [32]byte{1}}}
	webhook := driver.Webhook{ID: "wh", Account: "acct", URL: "https://example.com", WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow}}
	event := func(id string) driver.EncodedEvent {
		return driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow}
	}
	_, enqueued := s.Enqueue(ctx, event("unheard"))
	if err := errors.Join(enqueued, s.CreateKey(ctx, key, driver.CreateOptions{}), s.CreateWebhook(ctx, webhook, driver.CreateOptions{})); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"settled", "owed"} {
		if _, err := s.Enqueue(ctx, event(id)); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := storetest.WorkerOf(s).Claim(ctx, 1)
	if err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	if s.Halted() != nil {
		t.Error("it has halted")
	}
	disk.Around(func(commit func() error) error { return errors.Join(commit(), errDisk) })
	if _, err := s.Enqueue(ctx, event("unsure")); !errors.Is(err, errDisk) || errors.Is(err, store.ErrReadOnly) {
		t.Errorf("the step whose commit failed: %v", err)
	}
	disk.Around(nil)

	keep := func(state string, deferred bool) error {
		_, err := s.UpdateAlert(ctx, "acct", "metric", func(step *driver.AlertStep) error {
			step.State, step.Deferrable = []byte(state), deferred
			return nil
		})
		return err
	}
	_, claimed := storetest.WorkerOf(s).Claim(ctx, 1)
	_, settled := storetest.WorkerOf(s).Settle(ctx, []storetest.Settlement{{Task: tasks[0], Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1}}})
	_, enqueued = s.Enqueue(ctx, event("refused"))
	for name, err := range map[string]error{
		"CreateKey": s.CreateKey(ctx, driver.Key{ID: "k2", Account: "acct", Hash: driver.Hash{Sum: [32]byte{2}}}, driver.CreateOptions{}),
		"DeleteKey": s.DeleteKey(ctx, "acct", "key", nil, audit.Entry{}), "Enqueue": enqueued, "Claim": claimed, "Settle": settled,
		"UpdateAlert": keep("state", false), "UpdateAlert, deferred": keep("state", true), "DeleteWebhook": s.DeleteWebhook(ctx, "acct", "wh", nil, audit.Entry{}),
	} {
		if !errors.Is(err, store.ErrReadOnly) || !strings.Contains(err.Error(), "storage.db") || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("%s = %v, want ErrReadOnly, the file and why", name, err)
		}
	}
	_, byHash := s.KeyByHash(ctx, key.Hash)
	_, of := s.EventDeliveries(ctx, "acct", "unsure") // readers see it
	_, counted := s.Unreported(ctx, "")
	if err := errors.Join(byHash, of, counted, keep("", false)); err != nil {
		t.Errorf("reads: %v", err)
	}
	if !errors.Is(s.Halted(), store.ErrReadOnly) {
		t.Errorf("Halted = %v", s.Halted())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	s = open(t, dir).(*bolt.Store)
	defer func() { _ = s.Close() }()
	if tasks, err = storetest.WorkerOf(s).Claim(ctx, 9); err != nil || len(tasks) != 3 || s.Halted() != nil {
		t.Errorf("opened again: %d tasks, %v, %v", len(tasks), err, s.Halted())
	}
}

// The test checks the response 503 with Retry-After. On a full disk, it must say that nothing was
// changed. After a failed sync, it must say that the change may have been made, and later, on the
// halted store, that nothing was changed.
func TestHTTP_CommitFails_503SaysWhetherChangeIsPossible(t *testing.T) {
	var disk boltfault.Disk
	s := openWith(t, t.TempDir(), disk.Option)
	defer func() { _ = s.Close() }()
	api, err := storageapi.NewHandler(storageapi.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	_, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "admin", Scopes: scopes.Specified()})
	must(t, err)
	post := func(code int, says string) {
		t.Helper()
		r := httptest.NewRequest("POST", "/v2/api-keys", strings.NewReader(`{"name":"a","scopes":["files:read"]}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", token.Reveal())
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), says) || (code == 503) != (w.Header().Get("Retry-After") == "5") {
			t.Errorf("POST: %d, Retry-After %q, %s, want %d and %q", w.Code, w.Header().Get("Retry-After"), w.Body, code, says)
		}
	}
	disk.Around(func(func() error) error { return errFull })
	post(503, "Nothing was changed.")
	disk.Around(nil)
	post(201, "")
	disk.Around(func(commit func() error) error { return errors.Join(commit(), errDisk) })
	post(503, "may have been made.")
	disk.Around(nil)
	post(503, "Nothing was changed.")
}
