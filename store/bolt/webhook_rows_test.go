package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// TestWebhookRows changes webhooks at random, in batches; some steps and some commits fail. After
// each batch, the webhooks in memory must equal the webhooks in the file.
func TestWebhookRows(t *testing.T) {
	var disk boltfault.Disk
	s := openTemp(t, disk.Option)
	random := rand.New(rand.NewPCG(1, 2))
	id := func() int { return 1 + random.IntN(5) }
	step := func() func(*batch) error {
		webhook := testWebhook(id())
		webhook.Account = fmt.Sprint("acct", webhook.ID[len(webhook.ID)-1]%2)
		webhook.URL = fmt.Sprint("https://example.com/", random.IntN(1000))
		webhook.ProvenAt = time.Now() // the file stores whole milliseconds
		fail, kind := random.IntN(40), random.IntN(6)
		return func(b *batch) (err error) {
			exists := b.Get(schema.WebhookIDs, []byte(webhook.ID)) != nil
			switch kind {
			case 0:
				err = s.deleteWebhook(b, webhook.Account, webhook.ID, nil)
			case 1:
				_ = s.webhookRows.ofAccount(b.Tx, webhook.Account)
			case 2:
				_ = s.webhookRows.inStep(b.Tx, webhook.ID)
			default:
				if !exists {
					_ = b.Put(schema.WebhookIDs, []byte(webhook.ID), []byte(webhook.Account))
				}
				err = s.putWebhook(b, &webhook)
			}
			if got, want := s.webhookRows.ofAccount(b.Tx, webhook.Account).list, s.webhookRows.readAccount(b.tx, webhook.Account).list; !same(got, want) {
				t.Errorf("a step sees %v, want %v", urls(got), urls(want))
			}
			switch fail {
			case 0:
				return errBad
			case 1:
				panic("at random")
			case 2:
				runtime.Goexit()
			}
			return err
		}
	}
	fails, held := 0, 0
	for range 200 {
		commitFails := random.IntN(10) == 0
		disk.Around(func(commit func() error) error {
			if commitFails {
				fails++
				return errFull
			}
			return commit()
		})
		var steps []func(*batch) error
		for range 1 + random.IntN(4) {
			steps = append(steps, step())
		}
		_ = together(t, s, steps...) // some steps fail intentionally
		disk.Around(nil)
		if random.IntN(3) == 0 {
			claimAtRandom(t, s, random)
		}
		held += checkWebhookRows(t, s)
		if t.Failed() {
			return
		}
	}
	if fails == 0 || held < 200 {
		t.Errorf("coverage precondition failed: %d commits failed, and %d values in memory were compared", fails, held)
	}
}

// claimAtRandom claims the pending deliveries of an event, and settles some of them.
func claimAtRandom(t *testing.T, s *engine, random *rand.Rand) {
	event := testEvent(random.Int(), 10)
	event.Account = fmt.Sprint("acct", random.IntN(2))
	if _, err := s.Enqueue(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 99)
	if err != nil {
		t.Fatal(err)
	}
	var settlements []storetest.Settlement
	for _, task := range tasks {
		settlements = append(settlements, settlementOf(task, []driver.Effect{driver.Deliver, driver.GiveUp}[random.IntN(2)]))
	}
	if _, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil {
		t.Fatal(err)
	}
}

// checkWebhookRows checks that the webhooks in memory equal the webhooks in the file. It returns
// the number of webhooks in memory.
func checkWebhookRows(t *testing.T, s *engine) (held int) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		for n := range 6 {
			id := testWebhook(n).ID
			if got, ok := s.webhookRows.byID.Get(id); ok {
				held++
				if want := s.webhookRows.read(tx, id); !reflect.DeepEqual(got, want) {
					t.Errorf("%s is in memory as %+v, want %+v", id, got, want)
				}
			}
		}
		for _, account := range []string{"acct0", "acct1", testWebhook(1).Account} {
			got, ok := s.webhookRows.byAccount.Get(account)
			if !ok {
				continue
			}
			held++
			if want := s.webhookRows.readAccount(tx, account).list; !same(got.list, want) {
				t.Errorf("%s is in memory with %v, want %v", account, urls(got.list), urls(want))
			}
			for _, cached := range got.subscribers {
				want := got.matching(&driver.EncodedEvent{Type: cached.to, Scope: cached.scope}, func(*indexedWebhook) bool { return true })
				if !reflect.DeepEqual(cached, want) {
					t.Errorf("%s has the subscribers %v, want %v", account, cached, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func same(a, b []*indexedWebhook) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }

func urls(list []*indexedWebhook) (urls []string) {
	for _, w := range list {
		urls = append(urls, w.ID+" "+w.URL)
	}
	return urls
}

// After a commit with unknown outcome, the webhooks that it changed are read from the file, in the
// state that readers of the file see.
func TestWebhookCache_CommitInDoubt_ReadsFile(t *testing.T) {
	var disk boltfault.Disk
	s := openTemp(t, disk.Option)
	webhook := testWebhook(1)
	if err := s.CreateWebhook(t.Context(), webhook, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	disk.Around(func(commit func() error) error { return errors.Join(commit(), errBad) })
	_, err := s.UpdateWebhook(t.Context(), webhook.Account, webhook.ID, func(w *driver.Webhook, _ *audit.Entry) error {
		w.URL = "https://after.example.com/"
		return nil
	})
	if !errors.Is(err, errBad) || s.Halted() == nil {
		t.Fatalf("UpdateWebhook = %v, halted: %v", err, s.Halted())
	}
	version := s.webhookRows.version()
	tx, err := s.view(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for range 2 {
		if w := s.webhookRows.seen(tx, version, webhook.ID); w == nil || w.URL != "https://after.example.com/" {
			t.Errorf("loaded %+v", w)
		}
		if _, ok := s.webhookRows.byID.Get(webhook.ID); ok {
			t.Error("the webhook is in memory")
		}
	}
}

// If a claim has read a webhook before a change, it does not add the old version to the cache after
// the change.
func TestClaim_ConcurrentChange_DoesNotCacheOldWebhook(t *testing.T) {
	s := openTemp(t)
	webhook := testWebhook(1)
	if err := s.CreateWebhook(t.Context(), webhook, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Grow the file first: growing it later would wait for the reader below.
	for _, value := range [][]byte{make([]byte, 1<<20), nil} {
		if err := s.writer.Run(t.Context(), func(b *batch) error { return b.PutOrDelete(schema.Meta, []byte("room"), value) }); err != nil {
			t.Fatal(err)
		}
	}
	s.webhookRows.byID.Clear()
	version := s.webhookRows.version()
	tx, err := s.view(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := s.DeleteWebhook(t.Context(), webhook.Account, webhook.ID, nil, audit.Entry{}); err != nil {
		t.Fatal(err)
	}
	if w := s.webhookRows.seen(tx, version, webhook.ID); w == nil || w.URL != webhook.URL {
		t.Errorf("loaded %v", w)
	}
	checkWebhookRows(t, s)
}
