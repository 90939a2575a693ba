package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// erasable fills a store with two accounts that have n events each, some of them settled. Every
// value of the account to erase contains a mark. erasable returns the expected receipt of that
// erasure.
func erasable(t testing.TB, s store.Store, n int) store.Receipt {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, account := range []string{"SECRETacct", "other"} {
		request := driver.CreateOptions{IdempotencyKey: account + "request", IdempotencyTTL: time.Hour}
		key := driver.Key{ID: account + "key", Account: account, Name: account + "name", Hash: markedHash(account, 1), Previous: markedHash(account, 2)}
		must(s.CreateKey(ctx, key, request))
		must(s.RecordKeyUse(ctx, []driver.KeyUse{{Account: account, ID: key.ID, Hash: key.Hash, At: time.Now()}}))
		for _, id := range []string{"a", "b"} {
			must(s.CreateWebhook(ctx, driver.Webhook{
				ID: account + id, Account: account, URL: "https://" + account + ".example", Secret: signing.NewSecret(), WebhookHealth: driver.WebhookHealth{Active: id == "a"},
				Events: []driver.EventType{alerts.TypeBalanceLow},
			}, driver.CreateOptions{}))
		}
		must(s.CreateRecovery(ctx, driver.Recovery{ID: account + "recovery", Account: account, WebhookID: account + "a", States: []driver.DeliveryState{driver.Dead}}, audit.Entry{}))
		_, err := s.UpdateAlert(ctx, account, "series", func(step *driver.AlertStep) error { step.State = []byte(account); return nil })
		must(err)
		_, err = s.EnqueueOnce(ctx, driver.EncodedEvent{ID: account + "once", Account: account, Type: alerts.TypeBalanceLow, Body: []byte(account)},
			[]driver.DedupKey{{Key: account, Until: time.Now().Add(time.Hour)}})
		must(err)
	}
	group := make(chan error)
	for i := range n {
		go func() {
			var err error
			for _, account := range []string{"SECRETacct", "other"} {
				_, failed := s.Enqueue(context.WithoutCancel(ctx), driver.EncodedEvent{
					ID: fmt.Sprintf("%s%d", account, i), Account: account, Type: alerts.TypeBalanceLow, Body: []byte(account),
				})
				err = errors.Join(err, failed)
			}
			group <- err
		}()
	}
	for range n {
		must(<-group)
	}
	for range 3 {
		tasks, err := storetest.WorkerOf(s).Claim(ctx, n/2)
		must(err)
		var list []storetest.Settlement
		for i, task := range tasks {
			list = append(list, storetest.Settlement{
				Task: task, Effect: []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry, storetest.Postpone}[i%4],
				Attempt: driver.Attempt{Number: task.Attempt, Response: task.Webhook.Account, Error: task.Webhook.Account, StartedAt: time.Now()},
			})
		}
		_, err = storetest.WorkerOf(s).Settle(ctx, list)
		must(err)
	}
	for more := true; more; { // indexes runs
		var err error
		more, err = s.Purge(ctx, driver.Purge{Limit: 100})
		must(err)
	}
	return store.Receipt{Keys: 1, Webhooks: 2, Events: n + 1, Deliveries: 2*n + 2, Recoveries: 1, Alerts: 1, DedupKeys: 1, IdempotencyKeys: 1}
}

func markedHash(account string, n byte) (hash driver.Hash) {
	copy(hash.Sum[:], fmt.Sprintf("%s%032d", account, n))
	return hash
}

func eraseAll(t testing.TB, s store.Store) (erased store.Receipt, steps int) {
	t.Helper()
	for more := true; more; steps++ {
		var err error
		if erased, more, err = s.EraseAccount(t.Context(), "SECRETacct", 1000); err != nil {
			t.Fatal(err)
		}
	}
	return erased, steps
}

// wantNoMark checks that the compacted file does not contain the mark of the erased account.
func wantNoMark(t *testing.T, dir string) {
	t.Helper()
	src, err := bbolt.Open(filepath.Join(dir, "storage.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	path := filepath.Join(t.TempDir(), "compact.db")
	dst, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(bbolt.Compact(dst, src, 1<<20), dst.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at := bytes.Index(content, []byte("SECRET")); at >= 0 {
		t.Errorf("after erasing and compacting: %q", content[max(0, at-50):at+50])
	}
	if !bytes.Contains(content, []byte("other")) {
		t.Error("the other account is gone, too")
	}
}

// TestEraseLeavesNoBytes checks that no page of a compacted file contains erased data.
func TestEraseLeavesNoBytes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := erasable(t, s, 2000)
	erased, _ := eraseAll(t, s)
	if diff := cmp.Diff(want, erased); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	page, err := s.ListDeliveries(t.Context(), "other", "othera", driver.DeliveryQuery{Limit: 9999})
	if err != nil || len(page.Deliveries) != 2001 {
		t.Errorf("the other's deliveries: %d, %v", len(page.Deliveries), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantNoMark(t, dir)
	s = open(t, dir)
	defer func() { _ = s.Close() }()
	if page, err = s.ListDeliveries(t.Context(), "other", "othera", driver.DeliveryQuery{Limit: 9999}); err != nil || len(page.Deliveries) != 2001 {
		t.Errorf("the other's deliveries after it was opened again: %d, %v", len(page.Deliveries), err)
	}
	backlog, err := storetest.WorkerOf(s).Backlog(t.Context(), "")
	pending := 0
	for _, d := range page.Deliveries {
		if d.State == driver.Pending {
			pending++
		}
	}
	if err != nil || backlog.Pending != pending {
		t.Errorf("pending: %d, want %d, %v", backlog.Pending, pending, err)
	}
}

// The test opens the file as a kill leaves it after each step of an erasure. The account must still
// be closed, and the erasure must continue.
func TestErase_KilledAfterAnyStep_Continues(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer func() { _ = s.Close() }()
	want := erasable(t, s, 300)
	for more := true; more; {
		var err error
		if _, more, err = s.EraseAccount(t.Context(), "SECRETacct", 50); err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		killed := t.TempDir()
		file, err := os.ReadFile(filepath.Join(dir, "storage.db"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(killed, "storage.db"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, killed)
		if _, err := again.KeyByHash(t.Context(), markedHash("SECRETacct", 1)); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("KeyByHash = %v", err)
		}
		if err := again.CreateKey(t.Context(), driver.Key{ID: "new", Account: "SECRETacct", Hash: markedHash("new", 1)}, driver.CreateOptions{}); !errors.Is(err, auth.ErrErasing) {
			t.Errorf("CreateKey = %v", err)
		}
		tasks, err := storetest.WorkerOf(again).Claim(t.Context(), 9999)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if task.Webhook.Account != "other" {
				t.Fatalf("claimed for %q", task.Webhook.Account)
			}
		}
		erased, _ := eraseAll(t, again)
		if diff := cmp.Diff(want, erased); diff != "" {
			t.Errorf("receipt (-want +got):\n%s", diff)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		wantNoMark(t, killed)
	}
}

// If commits of an erasure fail, the erasure can be repeated until it is complete.
func TestErase_CommitsFail_CanBeRepeated(t *testing.T) {
	for name, fail := range map[string]func(commit func() error) error{
		"full disk":           func(func() error) error { return errFull },
		"the last sync fails": func(commit func() error) error { return errors.Join(commit(), errDisk) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var disk boltfault.Disk
			s := openWith(t, dir, disk.Option)
			want := erasable(t, s, 100)
			var erased store.Receipt
			calls := 0
			for more := true; more; calls++ {
				if calls%3 == 0 {
					disk.Around(fail)
				}
				got, left, err := s.EraseAccount(t.Context(), "SECRETacct", 30)
				disk.Around(nil)
				if err == nil {
					erased, more = got, left
					continue
				}
				if s.(*bolt.Store).Halted() != nil {
					_ = s.Close()
					s = openWith(t, dir, disk.Option)
				}
				if calls > 1000 {
					t.Fatal("it does not end")
				}
			}
			if name == "full disk" { // in the other cases, only the result is lost
				if diff := cmp.Diff(want, erased); diff != "" {
					t.Errorf("receipt (-want +got):\n%s", diff)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			wantNoMark(t, dir)
		})
	}
}

// The file is sound after each step of an erasure, so a backup made at any time can be restored.
func TestErase_AfterEachStep_FileIsSound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer func() { _ = s.Close() }()
	for i := range 5 {
		for _, account := range []string{"SECRETacct", "other"} {
			_, err := s.AddAuditEntries(t.Context(), []audit.Entry{{
				ID: fmt.Sprint("aud_", i, account), Account: account, At: time.Now(), Action: audit.KeyCreated, Pending: true,
				Target: audit.Target{Kind: audit.TargetKey, ID: fmt.Sprint("key_", i%2)}, Actor: audit.Actor{Kind: audit.ActorHost},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for more := true; more; {
		var err error
		if _, more, err = s.EraseAccount(t.Context(), "SECRETacct", 1); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "backup.db")
		file, err := os.ReadFile(filepath.Join(dir, "storage.db"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := boltops.Restore(filepath.Join(t.TempDir(), "restored.db"), path, boltops.Fence{NothingRevoked: true}); err != nil {
			t.Error(err)
		}
	}
}
