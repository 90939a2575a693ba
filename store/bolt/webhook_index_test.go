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

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// TestWebhookIndex changes webhooks at random, in batches some of whose steps and commits
// fail, and wants the index to have them as they are in the file after each.
func TestWebhookIndex(t *testing.T) {
	s := openTemp(t)
	random := rand.New(rand.NewPCG(1, 2))
	id := func() int { return 1 + random.IntN(5) }
	step := func() func(*batch) error {
		webhook := testWebhook(id())
		webhook.Account = fmt.Sprint("acct", webhook.ID[len(webhook.ID)-1]%2)
		webhook.URL = fmt.Sprint("https://example.com/", random.IntN(1000))
		webhook.ProvenAt = time.Now() // which the file has to the millisecond only
		fail, kind := random.IntN(40), random.IntN(6)
		return func(b *batch) (err error) {
			exists := b.Get(bucketWebhookIDs, []byte(webhook.ID)) != nil
			switch kind {
			case 0:
				err = s.deleteWebhook(b, webhook.Account, webhook.ID, nil)
			case 1:
				_ = s.accountWebhooks(b, webhook.Account)
			case 2:
				_ = s.indexed(b, webhook.ID)
			default:
				if !exists {
					_ = b.Put(bucketWebhookIDs, []byte(webhook.ID), []byte(webhook.Account))
				}
				err = s.putWebhook(b, &webhook)
			}
			if got, want := s.accountWebhooks(b, webhook.Account).list, s.readAccount(b.tx, webhook.Account).list; !same(got, want) {
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
	fails := 0
	for range 200 {
		commitFails := random.IntN(10) == 0
		boltfault.Around(s, func(commit func() error) error {
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
		_ = together(t, s, steps...) // some fail, as they are meant to
		if random.IntN(3) == 0 {
			claimAtRandom(t, s, random)
		}
		checkIndex(t, s)
		if t.Failed() {
			return
		}
	}
	if fails == 0 || len(s.index.byID) == 0 || len(s.index.accounts) == 0 {
		t.Errorf("%d commits failed, %d webhooks and %d accounts are indexed: the test tests nothing", fails, len(s.index.byID), len(s.index.accounts))
	}
}

// claimAtRandom claims what an event makes pending, and settles some of it.
func claimAtRandom(t *testing.T, s *Store, random *rand.Rand) {
	boltfault.Around(s, nil)
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
		settlements = append(settlements, settlementOf(task, []webhooks.Outcome{webhooks.Deliver, webhooks.GiveUp}[random.IntN(2)]))
	}
	if _, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil {
		t.Fatal(err)
	}
}

// checkIndex wants what the index has to be as it is read from the file.
func checkIndex(t *testing.T, s *Store) {
	t.Helper()
	if len(s.index.changing) > 0 {
		t.Errorf("%v are changing still", s.index.changing)
	}
	listed := 0
	err := s.db.View(func(tx *bbolt.Tx) error {
		for id, got := range s.index.byID {
			if want := s.readIndexed(tx, id); !reflect.DeepEqual(got, want) {
				t.Errorf("%s is indexed as %+v, want %+v", id, got, want)
			}
		}
		for account, got := range s.index.accounts {
			listed += 1 + len(got.list)
			if want := s.readAccount(tx, account).list; !same(got.list, want) {
				t.Errorf("%s is indexed with %v, want %v", account, urls(got.list), urls(want))
			}
			if all := got.allSubscribers(); got.subscribers != nil && !reflect.DeepEqual(got.subscribers, all) {
				t.Errorf("%s has the subscribers %v, want %v", account, got.subscribers, all)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.index.listed != listed {
		t.Errorf("the index counts %d listed, has %d", s.index.listed, listed)
	}
}

func same(a, b []*indexedWebhook) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }

func urls(list []*indexedWebhook) (urls []string) {
	for _, w := range list {
		urls = append(urls, w.ID+" "+w.URL)
	}
	return urls
}

// TestWebhookIndexAfterAnUnsureCommit: what readers of the file see, the index has, also
// if the commit failed.
func TestWebhookIndexAfterAnUnsureCommit(t *testing.T) {
	s := openTemp(t)
	webhook := testWebhook(1)
	if err := s.CreateWebhook(t.Context(), webhook, webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	boltfault.Around(s, func(commit func() error) error { return errors.Join(commit(), errBad) })
	_, err := s.UpdateWebhook(t.Context(), webhook.Account, webhook.ID, func(w *webhooks.Webhook, _ *notices.Notice) error {
		w.URL = "https://after.example.com/"
		return nil
	})
	if !errors.Is(err, errBad) || s.Halted() == nil {
		t.Fatalf("UpdateWebhook = %v, halted: %v", err, s.Halted())
	}
	if w, changing := s.index.webhook(webhook.ID); w == nil || changing || w.URL != "https://after.example.com/" {
		t.Errorf("indexed: %+v, changing: %v", w, changing)
	}
	checkIndex(t, s)
}

// TestClaimBesideAChange: a claim that has read a webhook before a change does not put
// it in the index after it.
func TestClaimBesideAChange(t *testing.T) {
	s := openTemp(t)
	webhook := testWebhook(1)
	if err := s.CreateWebhook(t.Context(), webhook, webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A file that has to grow would wait for the reader below.
	for _, value := range [][]byte{make([]byte, 1<<20), nil} {
		if err := s.writer.Run(t.Context(), func(b *batch) error { return b.PutOrDelete(bucketMeta, []byte("room"), value) }); err != nil {
			t.Fatal(err)
		}
	}
	delete(s.index.byID, webhook.ID)
	r := &loader{store: s, ctx: t.Context()}
	if !r.begin() {
		t.Fatal(r.err)
	}
	defer r.end()
	if err := s.DeleteWebhook(t.Context(), webhook.Account, webhook.ID, nil, notices.Notice{}); err != nil {
		t.Fatal(err)
	}
	if w := r.webhook(webhook.ID); w == nil || w.URL != webhook.URL {
		t.Errorf("loaded %v, %v", w, r.err)
	}
	checkIndex(t, s)
}

// TestWebhookIndexIsBounded: no more is indexed than may be.
func TestWebhookIndexIsBounded(t *testing.T) {
	var x webhookIndex
	for i := range maxIndexed/4 + 10 {
		account, all := fmt.Sprint("acct", i), new(accountWebhooks)
		for j := range 8 {
			all.list = append(all.list, &indexedWebhook{Webhook: webhooks.Webhook{Account: account, ID: fmt.Sprint("wh", i, "_", j)}})
		}
		x.putAccount(account, all)
	}
	if len(x.byID) != maxIndexed || x.listed > maxIndexed || x.listed < maxIndexed-9 || len(x.accounts) != x.listed/9 {
		t.Errorf("%d webhooks, %d in %d lists", len(x.byID), x.listed, len(x.accounts))
	}
}
