package bolt_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

// The test moves a key's value to another key after the backup. Either the key is deleted and
// imported again, under an account or ID that sorts lower or higher, or the key is rotated and
// another key gets the old value. After Restore, the value must belong only to the key that has it
// in the abandoned file, and lists must be readable.
func TestRestore_ValueLaterImportedElsewhere_Succeeds(t *testing.T) {
	for _, to := range []boltops.Ref{{Account: "a", ID: "m"}, {Account: "z", ID: "m"}, {Account: "m", ID: "a"}, {Account: "m", ID: "z"}} {
		for _, rotated := range []bool{false, true} {
			t.Run(fmt.Sprint(to, " rotated ", rotated), func(t *testing.T) {
				c := newCopier(t)
				ctx := t.Context()
				hash, next := markedHash("moved", 1), markedHash("next", 2)
				noError(t, c.s.CreateKey(ctx, driver.Key{ID: "m", Account: "m", Hash: hash, ExpiresAt: time.Now().Add(time.Hour)}, driver.CreateOptions{}))
				backup := c.live()
				if rotated {
					_, err := c.s.UpdateKey(ctx, "m", "m", func(k *driver.Key, _ *audit.Entry) error { k.Hash = next; return nil })
					noError(t, err)
				} else {
					noError(t, c.s.DeleteKey(ctx, "m", "m", nil, audit.Entry{}))
				}
				noError(t, c.s.Import(ctx, []transfer.Record{&transfer.Key{Key: driver.Key{ID: to.ID, Account: to.Account, Hash: hash}}}))

				s := restoreFrom(t, backup, c.closed())
				key, err := s.KeyByHash(ctx, hash)
				noError(t, err)
				want(t, "key of the value", boltops.Ref{Account: key.Account, ID: key.ID}, to)
				for _, account := range []string{"a", "m", "z"} {
					if _, err := s.ListKeys(ctx, account, driver.ListQuery{Limit: 9}); err != nil {
						t.Errorf("ListKeys of %s: %v", account, err)
					}
				}
				_, err = s.KeyByID(ctx, "m", "m")
				if rotated {
					noError(t, err)
					key, err = s.KeyByHash(ctx, next)
				}
				if (err == nil) != rotated {
					t.Errorf("the key of before: %v, rotated: %v", err, rotated)
				}
			})
		}
	}
}

// After the backup, the test deletes a webhook and imports its ID into another account. After
// Restore, the webhook must belong to that account, without its old pending deliveries.
func TestRestore_WebhookLaterImportedElsewhere_Succeeds(t *testing.T) {
	for _, account := range []string{"a", "z"} {
		t.Run("to "+account, func(t *testing.T) {
			c := newCopier(t)
			ctx := t.Context()
			hook := driver.Webhook{
				ID: "wh", Account: "m", URL: "https://example.com/", Secret: signing.NewSecret(), WebhookHealth: driver.WebhookHealth{Active: true}, CreatedAt: time.Now(),
				Events: []driver.EventType{alerts.TypeBalanceLow},
			}
			noError(t, c.s.CreateWebhook(ctx, hook, driver.CreateOptions{}))
			publish := func(account, id string) {
				_, err := c.s.Enqueue(ctx, driver.EncodedEvent{ID: id, Account: account, Type: alerts.TypeBalanceLow, Body: []byte(`"` + id + `"`)})
				noError(t, err)
			}
			publish("m", "before")
			backup := c.live()
			noError(t, c.s.DeleteWebhook(ctx, "m", "wh", nil, audit.Entry{}))
			hook.Account = account
			noError(t, c.s.Import(ctx, []transfer.Record{&transfer.Webhook{Webhook: hook}}))
			publish(account, "since")

			s := restoreFrom(t, backup, c.closed())
			want(t, "released", release(t, s), 1)
			want(t, "claimed", pending(t, s), []string{"since to "})
			for _, one := range []string{"m", account} {
				list, err := s.ListWebhooks(ctx, one, driver.ListQuery{Limit: 9})
				noError(t, err)
				want(t, "webhooks of "+one, len(list), map[bool]int{true: 1}[one == account])
			}
		})
	}
}

// restoreFrom restores a backup with an abandoned file, checks the result, and opens it.
func restoreFrom(t *testing.T, backup, abandoned string) *bolt.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "restored.db")
	_, err := boltops.Restore(path, backup, boltops.Fence{Abandoned: abandoned})
	noError(t, err)
	wantSound(t, path)
	s, err := bolt.Open(path)
	noError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The test purges the body of an event after the backup. Restore must keep the event without the
// body, so that its ID is known and its deliveries are listed. Restore must also keep the state of
// alerts.
func TestRestore_BodiesPurgedSince_LosesNothingAndRepeatsNoAlert(t *testing.T) {
	c := newCopier(t)
	ctx := t.Context()
	noError(t, c.s.CreateWebhook(ctx, driver.Webhook{
		ID: "wh", Account: "acct", URL: "https://example.com/", Secret: signing.NewSecret(), WebhookHealth: driver.WebhookHealth{Active: true}, CreatedAt: time.Now(),
		Events: []driver.EventType{alerts.TypeBalanceLow},
	}, driver.CreateOptions{}))
	backup := c.live()
	event := func(id string) driver.EncodedEvent {
		return driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte(`"` + id + `"`)}
	}
	dedup := []driver.DedupKey{{Key: "told", Until: time.Now().Add(time.Hour)}}
	_, err := c.s.EnqueueOnce(ctx, event("delivered"), dedup)
	noError(t, err)
	_, err = c.s.UpdateAlert(ctx, "acct", "series", func(step *driver.AlertStep) error { step.State = []byte("told"); return nil })
	noError(t, err)
	tasks, err := storetest.WorkerOf(c.s).Claim(ctx, 9)
	noError(t, err)
	for _, task := range tasks {
		_, err := storetest.WorkerOf(c.s).Settle(ctx, []storetest.Settlement{{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: 1, StartedAt: time.Now(), Status: 200}}})
		noError(t, err)
	}
	_, err = c.s.Enqueue(ctx, event("expired"))
	noError(t, err)
	time.Sleep(2 * time.Millisecond)
	purge := driver.Purge{Payloads: time.Now(), Limit: 9}
	for more := true; more; {
		more, err = c.s.Purge(ctx, purge)
		noError(t, err)
	}
	_, err = c.s.Enqueue(ctx, event("pending"))
	noError(t, err)
	var lists [][]driver.Delivery
	for _, id := range []string{"delivered", "expired", "pending"} {
		list, err := c.s.EventDeliveries(ctx, "acct", id)
		noError(t, err)
		lists = append(lists, list)
	}

	s := restoreFrom(t, backup, c.closed())
	for i, id := range []string{"delivered", "expired", "pending"} {
		got, err := s.EventDeliveries(ctx, "acct", id)
		noError(t, err)
		want(t, "deliveries of "+id, got, lists[i])
		if n, err := s.Enqueue(ctx, event(id)); n != 1 || err != nil {
			t.Errorf("%s published again: got %d deliveries, %v, want the 1 of before", id, n, err)
		}
	}
	if unseen, err := s.UnseenKeys(ctx, "acct", dedup); len(unseen) > 0 || err != nil {
		t.Errorf("the alert would be told again: %v, %v", unseen, err)
	}
	_, err = s.UpdateAlert(ctx, "acct", "series", func(step *driver.AlertStep) error {
		want(t, "what the alert remembers", string(step.State), "told")
		return nil
	})
	noError(t, err)
	want(t, "released", release(t, s), 1)
	want(t, "claimed", pending(t, s), []string{"pending to "})
}

var damagedRows = flag.Int("damaged-rows", 60, "how many rows TestRestore_DamagedRows_ReportedAndNothingRevived damages; a third with -short or the race detector")

// The test damages one row at a time in the backup or in the abandoned file. Restore must restore a
// file that Verify and Open accept, and report the problems; with RefuseDamaged, it must refuse the
// file. Keys listed as deleted must stay invalid.
func TestRestore_DamagedRows_ReportedAndNothingRevived(t *testing.T) {
	t.Parallel()
	rounds := *damagedRows
	if testing.Short() || testbubble.Raced {
		rounds /= 3
	}
	whole := rich(t, 6)
	random := rand.New(rand.NewPCG(27, 1))
	dir := t.TempDir()
	damaged, restored, opened := filepath.Join(dir, "damaged.db"), filepath.Join(dir, "restored.db"), filepath.Join(dir, "opened.db")
	hashes, refs := keysOf(t, whole)
	reported, refused := 0, 0
	for range rounds {
		copyFile(t, whole, damaged)
		what := damageRow(t, damaged, random)
		report, err := boltops.Verify(damaged, nil)
		copyFile(t, damaged, opened)
		s, unopened := bolt.Open(opened)
		if unopened == nil {
			noError(t, s.Close())
		}
		type input struct {
			backup string
			fence  boltops.Fence
		}
		inputs := map[string]input{"backup": {damaged, boltops.Fence{DeletedKeys: refs}}, "abandoned file": {whole, boltops.Fence{Abandoned: damaged, DeletedKeys: refs}}}
		if strings.HasPrefix(what, "meta") {
			delete(inputs, "abandoned file") // the two files may no longer be recognized as related
		}
		for name, in := range inputs {
			info, failed := boltops.Restore(restored, in.backup, in.fence)
			if (failed == nil) != (err == nil && unopened == nil) {
				t.Fatalf("%s, %s: Restore: %v; Verify: %v; Open: %v", what, name, failed, err, unopened)
			}
			if failed != nil {
				refused++
				continue
			}
			want(t, what+": damaged rows", info.Damaged, report.Problems)
			s, err := bolt.Open(restored)
			noError(t, err)
			for _, hash := range hashes {
				if key, err := s.KeyByHash(t.Context(), hash); err == nil {
					t.Errorf("%s, %s: a value of deleted key %s works", what, name, key.ID)
				}
			}
			noError(t, s.Close())
			noError(t, os.Remove(restored))
		}
		if len(report.Problems) > 0 {
			reported++
			_, err := boltops.Restore(restored, damaged, boltops.Fence{NothingRevoked: true, RefuseDamaged: true})
			if !errors.Is(err, bolt.ErrSchema) {
				t.Errorf("%s: with RefuseDamaged: got %v, want %v", what, err, bolt.ErrSchema)
			}
		}
	}
	t.Logf("%d of %d are reported, %d refused", reported, rounds, refused)
	if rounds >= 60 && reported < rounds/2 {
		t.Errorf("coverage precondition failed: got %d damaged rows reported of %d", reported, rounds)
	}
}

// keysOf returns the hashes and the references of all keys in a file.
func keysOf(t *testing.T, path string) (hashes []driver.Hash, refs []boltops.Ref) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy.db")
	copyFile(t, path, copied)
	s, err := bolt.Open(copied)
	noError(t, err)
	defer func() { _ = s.Close() }()
	for page, err := range transfer.Pages(t.Context(), s, "", 1000) {
		noError(t, err)
		for _, r := range page.Records {
			if key, is := r.(*transfer.Key); is {
				hashes, refs = append(hashes, key.Hash), append(refs, boltops.Ref{Account: key.Account, ID: key.ID})
				if !key.Previous.IsZero() {
					hashes = append(hashes, key.Previous)
				}
			}
		}
	}
	if len(refs) == 0 {
		t.Fatal("coverage precondition failed: there are no keys")
	}
	return hashes, refs
}

// damageRow changes, cuts, deletes or moves a row of a file, and returns a description of the
// damage.
func damageRow(t *testing.T, path string, random *rand.Rand) (what string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	noError(t, err)
	defer func() { noError(t, db.Close()) }()
	noError(t, db.Update(func(tx *bbolt.Tx) error {
		var names [][]byte
		_ = tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if k, v := b.Cursor().First(); k != nil && v != nil {
				names = append(names, bytes.Clone(name))
			}
			return nil
		})
		name := names[random.IntN(len(names))]
		if random.IntN(3) == 0 {
			name = [][]byte{[]byte("keys"), []byte("accounts")}[random.IntN(2)]
		}
		b := tx.Bucket(name)
		var keys [][]byte
		_ = b.ForEach(func(k, _ []byte) error { keys = append(keys, bytes.Clone(k)); return nil })
		k := keys[random.IntN(len(keys))]
		value := bytes.Clone(b.Get(k))
		kind := random.IntN(4)
		what = fmt.Sprintf("%s %q, damage %d", name, k, kind)
		switch {
		case kind == 0 && len(value) > 0:
			value[random.IntN(len(value))] ^= 1 << random.IntN(8)
			return b.Put(k, value)
		case kind == 1 && len(value) > 0:
			return b.Put(k, value[:random.IntN(len(value))])
		case kind == 2:
			k[random.IntN(len(k))] ^= 1 << random.IntN(8)
			return b.Put(k, value)
		}
		return b.Delete(k)
	}))
	return what
}
