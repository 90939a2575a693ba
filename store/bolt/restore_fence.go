package bolt

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/salvage"
	"github.com/storageapi/storageapi/webhooks"
)

// fenceStep is how many rows a transaction of a fencer changes, at most.
const fenceStep = 1000

// A fencer applies a fence to the file that is being restored, which has no other user.
type fencer struct {
	store     *Store
	fence     *Fence
	info      *RestoreInfo
	abandoned *salvage.File  // nil: there is none that can be read
	segment   record.Segment // of the abandoned file, that was looked at last
	gone      map[Ref]bool   // whether webhooks were deleted since, as far as it was asked for
	end       uint64         // the number after the last that the backup has
}

// run applies the fence. Listed tells that it names what was revoked, or that nothing was.
func (f *fencer) run(listed bool) (err error) {
	defer func() { // bbolt panics where a page is damaged
		if p := recover(); p != nil {
			err = errDamaged(p)
		}
	}()
	f.info.LastPublished = f.store.lastPublished
	for _, r := range f.fence.DeletedWebhooks {
		f.gone[r] = true
	}
	err = f.store.db.View(func(tx *bbolt.Tx) error {
		f.end = tx.Bucket(bucketEvents).Sequence() + 1
		return nil
	})
	if err != nil {
		return err
	}
	if len(f.info.Damaged) > 0 {
		if err := f.deleteUnlisted(); err != nil {
			return err
		}
	}
	if f.fence.Abandoned != "" {
		if err := f.openAbandoned(); err != nil {
			return err
		}
		defer func() {
			if f.abandoned != nil {
				_ = f.abandoned.Close()
			}
		}()
	}
	erased := slices.Clone(f.fence.ErasedAccounts)
	for _, r := range f.ours(bucketErasures, nil, math.MaxInt) { // or it would take what came since
		erased = append(erased, string(r.key))
	}
	slices.Sort(erased)
	for _, account := range slices.Compact(erased) {
		if err := f.erase(account); err != nil {
			return err
		}
	}
	rotated := make(map[Ref]bool) // whether the abandoned file has the new value
	for _, r := range f.fence.RotatedKeys {
		rotated[r] = false
	}
	var erasing []row
	if f.abandoned != nil {
		var damaged bool
		if erasing, damaged = f.theirs(bucketErasures, nil, math.MaxInt); damaged {
			f.unreadable(string(bucketErasures))
		}
		if err := f.takeKeys(rotated); err != nil {
			return err
		}
	}
	if len(f.info.Unreadable) > 0 && !listed {
		return fmt.Errorf("%w: the abandoned file cannot be read: %s; list keys in Fence.DeletedKeys and Fence.RotatedKeys, or say Fence.NothingRevoked",
			ErrUnfenced, f.info.Unreadable[0])
	}
	if err := f.settleSince(); err != nil { // also of webhooks that were deleted since
		return err
	}
	if f.abandoned != nil {
		if err := f.takeWebhooks(); err != nil {
			return err
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(f.fence.RotatedKeys), func(r Ref) bool { return rotated[r] })
	if err := f.eachRef(unknown, f.killKey); err != nil {
		return err
	}
	if err := f.eachRef(f.fence.DeletedKeys, f.deleteKey); err != nil {
		return err
	}
	if err := f.eachRef(f.fence.DeletedWebhooks, f.deleteWebhook); err != nil {
		return err
	}
	if f.abandoned != nil {
		if err := f.takeRest(); err != nil {
			return err
		}
	}
	for _, r := range erasing { // after all that it has of them
		if err := f.erase(string(r.key)); err != nil {
			return err
		}
	}
	// A cursor that the abandoned file gave may stand for what is another event here: who
	// followed its list of events begins at a time again.
	salt := cursor.NewKey()
	if err := f.step(func(b *batch) error { return b.Put(bucketMeta, keyRestored, salt[:]) }); err != nil {
		return err
	}
	if f.fence.NoHold {
		return nil
	}
	return f.holdAll()
}

func (f *fencer) step(step func(b *batch) error) error {
	return f.store.writer.Run(context.Background(), step)
}

// report counts and reports a finding.
func (f *fencer) report(count *int, found Finding) {
	*count++
	if f.fence.Report != nil {
		f.fence.Report(found)
	}
}

// unreadable notes that a part of the abandoned file could not be read.
func (f *fencer) unreadable(part string) {
	if !slices.Contains(f.info.Unreadable, part) {
		f.info.Unreadable = append(f.info.Unreadable, part)
	}
}

// eachRef has things changed, some in a transaction. What is not there is passed over.
func (f *fencer) eachRef(list []Ref, change func(b *batch, r Ref) (changed bool, err error)) error {
	for chunk := range slices.Chunk(list, fenceStep) {
		err := f.step(func(b *batch) error {
			for _, r := range chunk {
				if _, err := change(b, r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// killKey gives a key a hash that no value has. One that cannot be read is deleted.
func (f *fencer) killKey(b *batch, r Ref) (bool, error) {
	key, _, err := keyByID(b.tx, record.Prefixed(r.Account, r.ID))
	if err != nil {
		return f.deleteKey(b, r)
	}
	dead := key
	dead.Hint, dead.Previous, dead.PreviousHint, dead.PreviousExpiresAt = "", apikeys.Hash{}, "", time.Time{}
	if _, err := rand.Read(dead.Hash.Sum[:]); err != nil {
		return false, err
	}
	f.report(&f.info.KeysDead, Finding{Kind: KeyDead, Account: r.Account, ID: r.ID})
	return true, putKey(b, dead, key)
}

func (f *fencer) deleteKey(b *batch, r Ref) (bool, error) {
	row := record.Prefixed(r.Account, r.ID)
	if b.Get(bucketKeyIDs, row) == nil {
		return false, nil
	}
	f.report(&f.info.KeysDeleted, Finding{Kind: KeyDeleted, Account: r.Account, ID: r.ID})
	return true, f.removeKey(b, row)
}

// removeKey removes a key, also one that cannot be read.
func (f *fencer) removeKey(b *batch, row []byte) error {
	key, _, err := keyByID(b.tx, row)
	if err != nil {
		if err := b.Delete(bucketKeys, bytes.Clone(b.Get(bucketKeyIDs, row))); err != nil {
			return err
		}
		key = apikeys.Key{}
	}
	return f.store.removeKey(b, row, key)
}

// deleteUnlisted deletes the keys that are not found by their ids, for their rows are damaged: their
// values would be valid, and no fence could name them.
func (f *fencer) deleteUnlisted() error {
	for from := []byte{}; from != nil; {
		rows := f.ours(bucketKeys, from, fenceStep)
		err := f.step(func(b *batch) error {
			for _, r := range rows {
				var key apikeys.Key
				if _, alias := record.DecodeAlias(r.value); alias || len(r.key) != len(key.Hash.Sum) || record.DecodeKey(&key, r.key, r.value) != nil {
					continue // it is valid for nobody
				}
				if bytes.Equal(b.Get(bucketKeyIDs, record.Prefixed(key.Account, key.ID)), r.key) {
					continue
				}
				f.report(&f.info.KeysDeleted, Finding{Kind: KeyDeleted, Account: key.Account, ID: key.ID})
				b.keyCache.mark(&key.Hash)
				if err := b.Delete(bucketKeys, r.key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(rows) < fenceStep {
			return err
		}
		from = append(bytes.Clone(rows[len(rows)-1].key), 0)
	}
	return nil
}

// erase erases an account, and opens it again.
func (f *fencer) erase(account string) error {
	for more := true; more; {
		var err error
		if _, more, err = f.store.EraseAccount(context.Background(), account, fenceStep); err != nil {
			return err
		}
	}
	f.report(&f.info.AccountsErased, Finding{Kind: AccountErased, Account: account})
	return nil
}

func (f *fencer) deleteWebhook(b *batch, r Ref) (bool, error) {
	err := f.store.deleteWebhook(b, r.Account, r.ID, nil)
	if errors.Is(err, webhooks.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		f.report(&f.info.WebhooksDeleted, Finding{Kind: WebhookDeleted, Account: r.Account, ID: r.ID})
	}
	return err == nil, err
}

// holdAll puts all webhooks on hold. One that cannot be read has nothing sent to it anyway.
func (f *fencer) holdAll() error {
	for from := []byte{}; from != nil; {
		err := f.step(func(b *batch) error {
			var list []webhooks.Webhook // not written at once, for the cursor's sake
			c := b.tx.Bucket(bucketWebhooks).Cursor()
			k, value := c.Seek(from)
			for n := 0; k != nil && n < fenceStep; n++ {
				account, id := record.CutPrefixed(k)
				if w, err := record.DecodeWebhook(account, id, value, f.store.keys); err == nil && !w.Held {
					list = append(list, w)
				}
				k, value = c.Next()
			}
			from = slices.Clone(k)
			for i := range list {
				list[i].Held = true
				if err := f.store.putWebhook(b, &list[i]); err != nil {
					return err
				}
			}
			f.info.WebhooksHeld += len(list)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
