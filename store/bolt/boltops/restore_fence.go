package boltops

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// A fencer applies a fence to a copy of the backup, or of the abandoned file if there is one.
type fencer struct {
	path, from string
	fence      *Fence
	info       *RestoreInfo
	options    []bolt.Option

	known  map[Ref]bool // rotated keys whose new value the abandoned file has
	isFork bool         // the backup may have events that the abandoned file never had

	restored *closedCopy
	erased   []string // accounts
	store    *bolt.Store
	mu       sync.Mutex // guards the counts in info and calls of the fence's Report
}

// compare returns an error if the abandoned file is older than the backup. It also finds the
// rotated keys whose value differs between the two files.
func (f *fencer) compare() (err error) {
	defer recoverDamage(&err)
	var backup, abandoned origin
	values := make(map[Ref][]byte) // hashes of the rotated keys in the backup
	err = view(f.from, func(tx *bbolt.Tx) error {
		backup = originOf(tx)
		for _, r := range f.fence.RotatedKeys {
			values[r] = bytes.Clone(hashOf(tx, r))
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.known = make(map[Ref]bool)
	err = view(f.fence.Abandoned, func(tx *bbolt.Tx) error {
		abandoned = originOf(tx)
		for r, value := range values {
			f.known[r] = !bytes.Equal(value, hashOf(tx, r))
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !bytes.Equal(abandoned.cursors, backup.cursors):
		return errors.New("the backup is of a different file")
	case abandoned.isOlder(&backup):
		return fmt.Errorf("%w: it is older than the backup", ErrUnfenced)
	}
	f.isFork = !bytes.Equal(abandoned.restored, backup.restored)
	return nil
}

// view calls read with a read transaction of a closed file.
func view(path string, read func(*bbolt.Tx) error) error {
	db, file, err := openClosed(path)
	if err != nil {
		return err
	}
	defer func() { _ = pagefile.Close(db, file) }()
	return db.View(func(tx *bbolt.Tx) error {
		if err := schema.Check(tx); err != nil {
			return err
		}
		return read(tx)
	})
}

// recoverDamage turns a panic into an error: bbolt panics on damaged pages.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = pagefile.Damaged(p)
	}
}

func (f *fencer) run() (err error) {
	defer recoverDamage(&err)
	if f.fence.Abandoned == "" {
		f.erased = slices.Clone(f.fence.ErasedAccounts)
	}
	if err := f.update(f.prepare); err != nil {
		return err
	}
	if f.store, err = bolt.Open(f.restored.path, f.options...); err != nil {
		return err
	}
	if err = f.apply(context.Background()); err == nil && !f.restored.isSame() {
		err = errors.New("another Restore to the same path has started")
	}
	return errors.Join(err, f.store.Close())
}

func rowOf(r Ref) []byte { return record.AccountKey(r.Account, r.ID) }

// hashOf returns the hash of a key, or nil if the key does not exist.
func hashOf(tx *bbolt.Tx, r Ref) []byte {
	return record.DecodeAccountRow(tx.Bucket(schema.Accounts).Get(rowOf(r))).Hash
}

// update changes the restored file before a store opens it.
func (f *fencer) update(change func(*bbolt.Tx) error) error {
	db, _, err := pagefile.Open(f.restored.path, time.Now().Add(pagefile.DefaultWait), &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	return errors.Join(db.Update(change), db.Close())
}

// prepare makes the changes for which a store has no method, and reads the data that no method
// returns.
func (f *fencer) prepare(tx *bbolt.Tx) error {
	erasures := tx.Bucket(schema.Erasures).Cursor()
	for account, _ := erasures.First(); account != nil; account, _ = erasures.Next() {
		f.erased = append(f.erased, string(account))
	}
	f.info.Damaged, f.info.MoreDamaged = f.restored.report.Problems, f.restored.report.More
	f.info.LastPublished = eventlog.LastPublished(tx)
	if err := f.deleteDamaged(tx); err != nil {
		return err
	}
	// A cursor from the abandoned file may point to another event in this file. A new cursor key
	// makes such cursors invalid, so that clients start over from a point in time.
	salt := cursor.NewKey()
	return tx.Bucket(schema.Meta).Put(schema.MetaRestored, salt[:])
}

// deleteDamaged deletes the keys that a store could not delete: unreadable keys that the fence
// lists, and keys without a row by ID. The host could not name a key without that row, so the value
// of the key would stay valid.
func (f *fencer) deleteDamaged(tx *bbolt.Tx) error {
	if len(f.info.Damaged) == 0 {
		return nil
	}
	keys, accounts := tx.Bucket(schema.Keys), tx.Bucket(schema.Accounts)
	remove := func(r Ref, hash []byte) error {
		f.report(&f.info.KeysDeleted, Finding{Kind: KeyDeleted, Account: r.Account, ID: r.ID})
		return keys.Delete(hash)
	}
	for _, r := range slices.Concat(f.fence.DeletedKeys, f.fence.RotatedKeys, f.fence.DisabledKeys) {
		row := record.DecodeAccountRow(bytes.Clone(accounts.Get(rowOf(r))))
		hash := row.Hash
		key := decodeKey(hash, keys.Get(hash))
		if accounts.Get(rowOf(r)) == nil || key != nil && key.Account == r.Account && key.ID == r.ID {
			continue
		}
		if key != nil { // the row points to another key
			hash = nil
		}
		if err := errors.Join(remove(r, hash), accounts.Delete(rowOf(r)), tx.Bucket(schema.KeyUses).Delete(rowOf(r))); err != nil {
			return err
		}
		if row.Last > 0 {
			last := record.AccountRow{Last: row.Last}
			if err := accounts.Put(record.AuditEntriesOfTarget(r.Account, audit.Target{Kind: audit.TargetKey, ID: r.ID}), last.Encode()); err != nil {
				return err
			}
		}
	}
	unlisted := make(map[Ref][]byte)
	err := keys.ForEach(func(hash, value []byte) error {
		if _, alias := record.DecodeAlias(value); alias {
			return nil
		}
		if key := decodeKey(hash, value); key != nil && !bytes.Equal(hashOf(tx, Ref{key.Account, key.ID}), hash) {
			unlisted[Ref{key.Account, key.ID}] = bytes.Clone(hash)
		}
		return nil
	})
	for r, hash := range unlisted {
		err = errors.Join(err, remove(r, hash))
	}
	return err
}

// report counts and reports a finding.
func (f *fencer) report(count *int, found Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*count++
	if f.fence.Report != nil {
		f.fence.Report(found)
	}
}

// apply applies the fence to the open store.
func (f *fencer) apply(ctx context.Context) error {
	slices.Sort(f.erased)
	for _, account := range slices.Compact(f.erased) {
		if err := f.erase(ctx, account); err != nil {
			return err
		}
	}
	err := each(f.fence.RotatedKeys, func(r Ref) error {
		if f.known[r] {
			return nil
		}
		return f.killKey(ctx, r)
	})
	err = errors.Join(err, each(f.fence.DisabledKeys, func(r Ref) error {
		_, err := f.store.UpdateKey(ctx, r.Account, r.ID, func(key *driver.Key, _ *audit.Entry) error {
			key.Disabled = true
			return nil
		})
		return f.found(err, &f.info.KeysDisabled, KeyDisabled, r)
	}))
	err = errors.Join(err, each(f.fence.DeletedKeys, func(r Ref) error {
		return f.found(f.store.DeleteKey(ctx, r.Account, r.ID, nil, audit.Entry{}), &f.info.KeysDeleted, KeyDeleted, r)
	}))
	err = errors.Join(err, each(f.fence.DeletedWebhooks, func(r Ref) error {
		return f.found(f.store.DeleteWebhook(ctx, r.Account, r.ID, nil, audit.Entry{}), &f.info.WebhooksDeleted, WebhookDeleted, r)
	}))
	if err != nil {
		return err
	}
	if f.isFork {
		if err := f.addEvents(ctx); err != nil {
			return err
		}
	}
	return f.readAll(ctx)
}

// each calls change with the items, up to 64 concurrently, so that changes share commits.
func each[T any](items []T, change func(T) error) error {
	var group sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		group.Go(func() {
			for j := i; j < len(items) && errs[i] == nil; j += len(errs) {
				errs[i] = change(items[j])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// found reports a change if err, the result of the change, is nil. It returns err, but ignores
// [apierr.ErrNotFound].
func (f *fencer) found(err error, count *int, kind FindingKind, r Ref) error {
	switch {
	case errors.Is(err, apierr.ErrNotFound):
		return nil
	case err == nil:
		f.report(count, Finding{Kind: kind, Account: r.Account, ID: r.ID})
	}
	return err
}

// erase erases an account, and reopens it.
func (f *fencer) erase(ctx context.Context, account string) error {
	for more := true; more; {
		var err error
		if _, more, err = f.store.EraseAccount(ctx, account, 1000); err != nil {
			return err
		}
	}
	f.report(&f.info.AccountsErased, Finding{Kind: AccountErased, Account: account})
	return nil
}

// killKey sets a random hash, so that no value of the key is valid.
func (f *fencer) killKey(ctx context.Context, r Ref) error {
	_, err := f.store.UpdateKey(ctx, r.Account, r.ID, func(key *driver.Key, _ *audit.Entry) error {
		key.Hint, key.Previous, key.PreviousHint, key.PreviousExpiresAt = "", driver.Hash{}, "", time.Time{}
		_, err := rand.Read(key.Hash.Sum[:])
		return err
	})
	return f.found(err, &f.info.KeysDead, KeyDead, r)
}

// addEvents adds the events, requests, deduplication keys and audit entries that only the backup
// has. It omits pending deliveries to webhooks that do not exist in the restored file.
func (f *fencer) addEvents(ctx context.Context) error {
	copied, err := copyClosed(f.path, f.from)
	if err != nil {
		return fmt.Errorf("%s: %w", f.from, err)
	}
	defer copied.remove()
	backup, err := bolt.Open(copied.path, f.options...)
	if err != nil {
		return err
	}
	defer func() { _ = backup.Close() }()
	for page, err := range transfer.Pages(ctx, backup, "", 1000) {
		if err != nil {
			return err
		}
		var records []transfer.Record
		for _, r := range page.Records {
			if slices.Contains(f.fence.ErasedAccounts, r.Owner()) {
				continue
			}
			switch r := r.(type) {
			case *transfer.Event:
				isNew, err := f.isNew(ctx, r)
				if err != nil {
					return err
				}
				if isNew {
					f.reportPending(r)
					records = append(records, r)
				}
			case *transfer.Request, *transfer.DedupKey, *transfer.AuditEntry:
				records = append(records, r)
			}
		}
		if err := f.store.Import(ctx, records); err != nil {
			return err
		}
	}
	return nil
}

// isNew reports whether the restored file lacks the event. If so, isNew removes pending deliveries
// to unknown webhooks from e, and reports the event as added.
func (f *fencer) isNew(ctx context.Context, e *transfer.Event) (bool, error) {
	if _, err := f.store.EventDeliveries(ctx, e.Account, e.ID); e.Forgotten || !errors.Is(err, apierr.ErrNotFound) {
		return false, err
	}
	var gone error
	e.Deliveries = slices.DeleteFunc(e.Deliveries, func(d transfer.Delivery) bool {
		_, err := f.store.WebhookByID(ctx, e.Account, d.WebhookID)
		if err != nil && !errors.Is(err, apierr.ErrNotFound) {
			gone = err
		}
		return d.State == driver.Pending && err != nil
	})
	f.report(&f.info.EventsAdded, Finding{Kind: EventAdded, Account: e.Account, ID: e.ID})
	return true, gone
}

// readAll reads the restored file, puts its webhooks on hold, and reports deliveries that may have
// been sent since the backup. If there is an abandoned file, readAll stops at the first page that
// has events.
func (f *fencer) readAll(ctx context.Context) error {
	for page, err := range transfer.Pages(ctx, f.store, "", 1000) {
		if err != nil {
			return err
		}
		var hold []Ref
		done := false
		for _, r := range page.Records {
			switch r := r.(type) {
			case *transfer.Webhook:
				if !r.Held && !f.fence.NoHold {
					hold = append(hold, Ref{r.Account, r.ID})
				}
			case *transfer.Event:
				// Pending deliveries of the abandoned file have not been sent.
				if done = f.fence.Abandoned != ""; !done {
					f.reportPending(r)
				}
			}
		}
		f.info.WebhooksHeld += len(hold)
		if err := each(hold, func(r Ref) error { return f.hold(ctx, r) }); err != nil || done {
			return err
		}
	}
	return nil
}

func (f *fencer) hold(ctx context.Context, r Ref) error {
	_, err := f.store.UpdateWebhook(ctx, r.Account, r.ID, func(w *driver.Webhook, _ *audit.Entry) error {
		w.Held = true
		return nil
	})
	return err
}

func (f *fencer) reportPending(e *transfer.Event) {
	for i := range e.Deliveries {
		if d := &e.Deliveries[i]; d.State == driver.Pending {
			f.report(&f.info.MayBeSentTwice, Finding{Kind: MayBeSentTwice, Account: e.Account, ID: e.ID, Webhook: d.WebhookID})
		}
	}
}
