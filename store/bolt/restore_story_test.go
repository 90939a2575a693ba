package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
)

// A story performs random operations on stores, and runs steps of long jobs between the operations.
type story struct {
	t      *testing.T
	rand   *rand.Rand
	dir    string
	file   *bolt.Store
	source store.Store // the store to import from
	page   string      // the next page to import
	moving string      // the account being moved from source, or empty

	keys, hooks, events, others int
	erasing                     map[string]bool
	purging                     driver.Purge // the purge in progress
	times                       []time.Time
	counts                      map[string]int // numbers of operations, and of backups during jobs
}

var stories = flag.Int("stories", 6, "how many seeds TestRestore_BackupAtRandomMoment_FileSoundAndRestorable runs; a third with -short or the race detector")

var storyAccounts = []string{"a", "bb", "ccc"}

// The test makes backups at any moment, including between the steps of an erasure, a purge, a
// recovery and an import. Verify must find no problem in the backup, and restoring it must produce
// a sound file.
func TestRestore_BackupAtRandomMoment_FileSoundAndRestorable(t *testing.T) {
	t.Parallel()
	seeds := *stories
	if testing.Short() || testbubble.Raced {
		seeds = (seeds + 2) / 3
	}
	counts := make(map[string]int)
	for seed := range seeds {
		testbubble.Run(t, func(t *testing.T) {
			s := newStory(t, uint64(seed), counts)
			for range 150 {
				s.step()
			}
			s.backup()
			noError(t, s.file.Close())
			wantSound(t, filepath.Join(s.dir, "storage.db"))
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%v", counts)
	for _, what := range []string{"backup in an erasure", "backup in a purge", "backup in an import"} {
		if counts[what] == 0 {
			t.Errorf("coverage precondition failed: got no %s", what)
		}
	}
}

func newStory(t *testing.T, seed uint64, counts map[string]int) *story {
	s := &story{
		t: t, rand: rand.New(rand.NewPCG(seed, 27)), dir: t.TempDir(), source: memory.New(),
		erasing: make(map[string]bool), counts: counts,
	}
	file, err := bolt.Open(filepath.Join(s.dir, "storage.db"))
	noError(t, err)
	t.Cleanup(func() { _, _ = file.Close(), s.source.Close() })
	s.file = file
	for range 60 { // for the account that will be moved
		s.operate(s.source, "moved")
	}
	return s
}

// step performs an operation or a step of a job. Sometimes it makes a backup afterwards.
func (s *story) step() {
	switch n := s.rand.IntN(100); {
	case n < 70:
		s.operate(s.file, storyAccounts[s.rand.IntN(len(storyAccounts))])
	case n < 85:
		s.purge()
	case n < 93:
		s.erase()
	default:
		s.move()
	}
	if s.rand.IntN(6) == 0 {
		s.backup()
	}
}

// operate performs a random operation for an account.
func (s *story) operate(to store.Store, account string) {
	ctx := s.t.Context()
	time.Sleep(time.Duration(s.rand.Int64N(int64(10 * time.Minute))))
	kind := s.rand.IntN(20)
	var err error
	switch kind {
	case 0, 1:
		err = s.createKey(ctx, to, account)
	case 2:
		err = s.changeKey(ctx, to, account)
	case 3, 4:
		err = s.createWebhook(ctx, to, account)
	case 5:
		err = s.changeWebhook(ctx, to, account)
	case 6, 7, 8, 9, 10:
		err = s.publish(ctx, to, account)
	case 11, 12, 13, 14:
		err = s.deliver(ctx, to)
	case 15, 16:
		err = s.redeliver(ctx, to, account)
	case 17:
		err = s.recover(ctx, to, account)
	case 18:
		_, err = to.AdvanceRecovery(ctx, 1+s.rand.IntN(20))
	case 19:
		_, err = to.UpdateAlert(ctx, account, "series", func(step *driver.AlertStep) error {
			step.State = fmt.Append(nil, s.rand.IntN(99))
			return nil
		})
	}
	if err != nil && !s.erasing[account] && !errors.Is(err, driver.ErrRecovering) {
		s.t.Fatalf("operation %d of account %s: %v", kind, account, err)
	}
	s.counts[fmt.Sprint("operation ", kind)]++
}

func (s *story) entry(account, action, kind, id string) audit.Entry {
	s.others++
	return audit.Entry{
		ID: fmt.Sprintf("aud_%06d", s.others), Account: account, At: time.Now(), Action: audit.Action(action), Pending: s.rand.IntN(2) == 0,
		Target: audit.Target{Kind: audit.TargetKind(kind), ID: id}, Actor: audit.Actor{Kind: audit.ActorHost},
	}
}

func (s *story) createKey(ctx context.Context, to store.Store, account string) error {
	s.keys++
	id := fmt.Sprintf("key_%04d", s.keys)
	key := driver.Key{ID: id, Account: account, Name: id, Hash: markedHash(id, 1), CreatedAt: time.Now(), Scopes: scopes.Specified()}
	if s.rand.IntN(2) == 0 {
		key.ExpiresAt = time.Now().Add(30 * 24 * time.Hour)
	}
	options := driver.CreateOptions{AuditEntry: s.entry(account, string(audit.KeyCreated), string(audit.TargetKey), id)}
	if s.rand.IntN(2) == 0 {
		options.IdempotencyKey, options.IdempotencyTTL = id, 24*time.Hour
	}
	return to.CreateKey(ctx, key, options)
}

// changeKey rotates, uses or deletes a key.
func (s *story) changeKey(ctx context.Context, to store.Store, account string) error {
	list, err := to.ListKeys(ctx, account, driver.ListQuery{Limit: 99})
	if err != nil || len(list) == 0 {
		return err
	}
	key := list[s.rand.IntN(len(list))]
	switch s.rand.IntN(3) {
	case 0:
		return to.RecordKeyUse(ctx, []driver.KeyUse{{Account: account, ID: key.ID, Hash: key.Hash, At: time.Now()}})
	case 1:
		s.others++
		_, err = to.UpdateKey(ctx, account, key.ID, func(k *driver.Key, n *audit.Entry) error {
			k.Previous, k.PreviousExpiresAt = k.Hash, time.Now().Add(time.Hour)
			k.Hash = markedHash(fmt.Sprint(key.ID, "-", s.others), 2)
			*n = s.entry(account, string(audit.KeyRotated), string(audit.TargetKey), key.ID)
			return nil
		})
		return err
	}
	return to.DeleteKey(ctx, account, key.ID, nil, s.entry(account, string(audit.KeyDeleted), string(audit.TargetKey), key.ID))
}

func (s *story) createWebhook(ctx context.Context, to store.Store, account string) error {
	s.hooks++
	id := fmt.Sprintf("wh_%s%04d", account, s.hooks)
	options := driver.CreateOptions{AuditEntry: s.entry(account, string(audit.WebhookCreated), string(audit.TargetWebhook), id)}
	if s.rand.IntN(2) == 0 {
		options.IdempotencyKey, options.IdempotencyTTL = id, 24*time.Hour
	}
	return to.CreateWebhook(ctx, driver.Webhook{
		ID: id, Account: account, URL: "https://" + account + ".example/", Secret: signing.NewSecret(), WebhookHealth: driver.WebhookHealth{Active: s.rand.IntN(4) > 0}, CreatedAt: time.Now(),
		Events: []driver.EventType{alerts.TypeBalanceLow},
	}, options)
}

// changeWebhook turns a webhook on or off, holds it or deletes it.
func (s *story) changeWebhook(ctx context.Context, to store.Store, account string) error {
	list, err := to.ListWebhooks(ctx, account, driver.ListQuery{Limit: 99})
	if err != nil || len(list) == 0 {
		return err
	}
	id, what := list[s.rand.IntN(len(list))].ID, s.rand.IntN(3)
	if what == 2 {
		return to.DeleteWebhook(ctx, account, id, nil, s.entry(account, string(audit.WebhookDeleted), string(audit.TargetWebhook), id))
	}
	_, err = to.UpdateWebhook(ctx, account, id, func(w *driver.Webhook, _ *audit.Entry) error {
		if what == 0 {
			w.Active = !w.Active
		} else {
			w.Held = !w.Held
		}
		return nil
	})
	return err
}

// publish publishes some events, some of them in one commit.
func (s *story) publish(ctx context.Context, to store.Store, account string) error {
	n := 1 + s.rand.IntN(40)
	done := make(chan error, n)
	for range n {
		s.events++
		e := driver.EncodedEvent{
			ID: fmt.Sprintf("evt_%06d", s.events), Account: account, Type: alerts.TypeBalanceLow, Timestamp: time.Now(),
			Body: bytes.Repeat([]byte("b"), 1+s.rand.IntN(300)),
		}
		if s.rand.IntN(8) == 0 {
			_, err := to.EnqueueOnce(ctx, e, []driver.DedupKey{{Key: e.ID, Until: time.Now().Add(time.Hour)}})
			done <- err
			continue
		}
		go func() {
			_, err := to.Enqueue(ctx, e)
			done <- err
		}()
	}
	var err error
	for range n {
		err = errors.Join(err, <-done)
	}
	s.times = append(s.times, time.Now())
	return err
}

func (s *story) deliver(ctx context.Context, to store.Store) error {
	tasks, err := storetest.WorkerOf(to).Claim(ctx, 1+s.rand.IntN(120))
	if err != nil {
		return err
	}
	var list []storetest.Settlement
	outcomes := []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry, storetest.Postpone}
	for _, task := range tasks {
		end := storetest.Settlement{Task: task, Effect: outcomes[s.rand.IntN(len(outcomes))]}
		end.Attempt = driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Response: "response"}
		if end.Effect == driver.GiveUp || end.Effect == driver.Retry {
			end.Attempt.Class, end.RetryAfter = driver.ClassStatus, time.Duration(s.rand.Int64N(int64(time.Hour)))
		}
		list = append(list, end)
	}
	_, err = storetest.WorkerOf(to).Settle(ctx, list)
	return err
}

func (s *story) redeliver(ctx context.Context, to store.Store, account string) error {
	hooks, err := to.ListWebhooks(ctx, account, driver.ListQuery{Limit: 99})
	if err != nil || len(hooks) == 0 {
		return err
	}
	hook := hooks[s.rand.IntN(len(hooks))]
	page, err := to.ListDeliveries(ctx, account, hook.ID, driver.DeliveryQuery{Limit: 20, States: []driver.DeliveryState{driver.Dead, driver.Delivered, driver.Skipped}})
	if err != nil {
		return err
	}
	for _, d := range page.Deliveries {
		err := to.Redeliver(ctx, account, hook.ID, d.EventID, audit.Entry{})
		if err != nil && !errors.Is(err, apierr.ErrNotFound) { // the event's body is purged
			return err
		}
	}
	return nil
}

func (s *story) recover(ctx context.Context, to store.Store, account string) error {
	hooks, err := to.ListWebhooks(ctx, account, driver.ListQuery{Limit: 99})
	if err != nil || len(hooks) == 0 {
		return err
	}
	s.others++
	return to.CreateRecovery(ctx, driver.Recovery{
		ID: fmt.Sprintf("rec_%06d", s.others), Account: account, WebhookID: hooks[s.rand.IntN(len(hooks))].ID, CreatedAt: time.Now(),
		States: []driver.DeliveryState{driver.Dead, driver.Skipped},
	}, audit.Entry{})
}

// purge performs a step of a purge, and begins a purge if none is in progress.
func (s *story) purge() {
	if s.purging.Limit == 0 {
		s.purging = driver.Purge{Limit: 1 + s.rand.IntN(60)}
		pick := func() time.Time {
			if len(s.times) == 0 || s.rand.IntN(8) == 0 {
				return time.Now().Add(time.Millisecond) // all retention times have passed
			}
			return s.times[s.rand.IntN(len(s.times))]
		}
		if s.rand.IntN(5) > 0 {
			s.purging.Payloads, s.purging.DedupKeys, s.purging.AuditEntries = pick(), pick(), pick()
			s.purging.Attempts = earliest(s.purging.Payloads, pick())
			s.purging.EventIDs = earliest(s.purging.Payloads, pick())
		}
	}
	more, err := s.file.Purge(s.t.Context(), s.purging)
	noError(s.t, err)
	if !more {
		s.purging = driver.Purge{}
	}
	s.counts["purge"]++
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// erase performs the next step of an erasure. If none is in progress, it begins one at random.
func (s *story) erase() {
	var begun []string
	for account := range s.erasing {
		begun = append(begun, account)
	}
	slices.Sort(begun)
	account := storyAccounts[s.rand.IntN(len(storyAccounts))]
	switch {
	case len(begun) > 0:
		account = begun[0]
	case s.rand.IntN(3) > 0:
		return
	}
	_, more, err := s.file.EraseAccount(s.t.Context(), account, 1+s.rand.IntN(80))
	noError(s.t, err)
	if s.erasing[account] = more; !more {
		delete(s.erasing, account)
	}
	s.counts["erase"]++
}

// move imports a page of the account being moved. After the last page, it begins to erase the
// account, so that the account can be moved again.
func (s *story) move() {
	if s.erasing["moved"] {
		return
	}
	page, err := s.source.Export(s.t.Context(), "moved", s.page, 1+s.rand.IntN(25))
	noError(s.t, err)
	noError(s.t, s.file.Import(s.t.Context(), page.Records))
	s.moving = "moved"
	if s.page = page.Next; s.page == "" {
		s.moving, s.erasing["moved"] = "", true
	}
	s.counts["import"]++
}

// backup makes a backup, verifies it and restores it.
func (s *story) backup() {
	for what, is := range map[string]bool{"an erasure": len(s.erasing) > 0, "a purge": s.purging.Limit > 0, "an import": s.moving != ""} {
		if is {
			s.counts["backup in "+what]++
		}
	}
	s.counts["backup"]++
	wantRestorable(s.t, s.file)
}

// The test does the same with a file large enough to have indexes of complete runs. It makes a
// backup after each step of an erasure, and then after each step of a purge of everything else.
// Under the race detector, it makes a backup only after some of the steps.
func TestRestore_BackupOfLargeFileWithinJobs_FileSoundAndRestorable(t *testing.T) {
	t.Parallel()
	s, err := bolt.Open(filepath.Join(t.TempDir(), "storage.db"))
	noError(t, err)
	defer func() { _ = s.Close() }()
	erasable(t, s, 4200) // three runs of numbers
	steps := 0
	wantRestorableAfter := func(step int) {
		t.Helper()
		if !testbubble.Raced || step%5 == 0 {
			wantRestorable(t, s)
		}
	}
	for more := true; more; steps++ {
		_, more, err = s.EraseAccount(t.Context(), "SECRETacct", 2000)
		noError(t, err)
		wantRestorableAfter(steps)
	}
	end := time.Now().Add(time.Hour)
	for more := true; more; steps++ {
		more, err = s.Purge(t.Context(), driver.Purge{Payloads: end, Attempts: end, EventIDs: end, DedupKeys: end, AuditEntries: end, Limit: 500})
		noError(t, err)
		wantRestorableAfter(steps)
	}
	if steps < 20 {
		t.Errorf("coverage precondition failed: got %d steps, want 20", steps)
	}
}

// wantRestorable makes a backup of a store. It checks that the backup is sound, and that Restore
// creates a sound file from it.
func wantRestorable(t testing.TB, s *bolt.Store) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "backup.db")
	file, err := os.Create(path)
	noError(t, err)
	_, err = s.Backup(t.Context(), file)
	noError(t, errors.Join(err, file.Close()))
	wantRestores(t, path)
	noError(t, os.RemoveAll(dir))
}

// wantRestores checks that Restore finds no damage in a closed file, and creates a sound file from
// it.
func wantRestores(t testing.TB, path string) {
	t.Helper()
	restored := filepath.Join(t.TempDir(), "restored.db")
	_, err := boltops.Restore(restored, path, boltops.Fence{NothingRevoked: true, RefuseDamaged: true})
	noError(t, err)
	wantSound(t, restored)
	noError(t, os.Remove(restored))
}
