package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/salvage"
)

// openAbandoned opens the abandoned file, if anything of it can be read.
func (f *fencer) openAbandoned() error {
	path := f.fence.Abandoned
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, _, err := openFile(path, time.Now().Add(f.store.wait), &bbolt.Options{ReadOnly: true})
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err == nil {
		_ = db.Close() // nothing uses the file; what is wrong with it will be seen
	}
	old, err := salvage.Open(path)
	if errors.Is(err, salvage.ErrUnreadable) {
		f.unreadable("the whole file")
		return nil
	}
	if err != nil {
		return err
	}
	f.abandoned = old
	if old.LastLost() {
		f.unreadable("the last commit")
	}
	version, _ := old.Get(bucketMeta, keySchema)
	theirs, _ := old.Get(bucketMeta, keyCursors)
	ours := f.get(bucketMeta, keyCursors)
	switch {
	case theirs != nil && !bytes.Equal(theirs, ours):
		return fmt.Errorf("%s is another file than the one that the backup is of", path)
	case len(version) != 8 || binary.BigEndian.Uint64(version) != schemaVersion || theirs == nil:
		f.unreadable("the whole file")
	case f.isOlder():
		f.unreadable("what is newer than the backup: the file is older")
	default:
		return nil
	}
	f.abandoned = nil
	return old.Close()
}

// isOlder reports whether the abandoned file is of a time before the backup, such as an earlier backup:
// keys that were revoked between the two are in it. If one of them was restored since they have marks of
// their own, whose times count.
func (f *fencer) isOlder() bool {
	restored, _ := f.abandoned.Get(bucketMeta, keyRestored)
	if marks, _ := f.abandoned.Get(bucketMeta, keyMarks); bytes.Equal(restored, f.get(bucketMeta, keyRestored)) {
		return bytes.Compare(marks, f.get(bucketMeta, keyMarks)) < 0
	}
	value, _ := f.abandoned.Get(bucketMeta, keyClock)
	theirs, err := record.DecodeMark(value)
	ours, unknown := record.DecodeMark(f.get(bucketMeta, keyClock))
	return unknown == nil && (err != nil || theirs.Steady.Before(ours.Steady))
}

// get returns a row of the restored file.
func (f *fencer) get(bucket, key []byte) (value []byte) {
	_ = f.store.db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket(bucket).Get(key))
		return nil
	})
	return value
}

// A pair is a row of the restored file and the same of the abandoned one.
type pair struct {
	key, ours, theirs []byte // nil: not there
	unsure            bool   // theirs may be there, and cannot be read
}

// eachPair calls change with all rows of a bucket that either file has, some in a transaction.
func (f *fencer) eachPair(bucket []byte, change func(b *batch, p pair) error) error {
	for from := []byte{}; from != nil; {
		theirs, damaged := f.theirs(bucket, from, fenceStep)
		ours := f.ours(bucket, from, fenceStep)
		if damaged {
			f.unreadable(string(bucket))
		}
		// Up to the end of the list that ends first, if there is more of it.
		var end []byte
		for _, list := range [][]row{theirs, ours} {
			if n := len(list); n == fenceStep && (end == nil || bytes.Compare(list[n-1].key, end) < 0) {
				end = list[n-1].key
			}
		}
		err := f.step(func(b *batch) error {
			for len(ours)+len(theirs) > 0 {
				p := pair{unsure: damaged}
				switch order := compareFirst(ours, theirs); {
				case order < 0:
					p.key, p.ours, ours = ours[0].key, ours[0].value, ours[1:]
				case order > 0:
					p.key, p.theirs, theirs = theirs[0].key, theirs[0].value, theirs[1:]
				default:
					p.key, p.ours, p.theirs, ours, theirs = ours[0].key, ours[0].value, theirs[0].value, ours[1:], theirs[1:]
				}
				if end != nil && bytes.Compare(p.key, end) > 0 {
					return nil
				}
				if err := change(b, p); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if from = nil; end != nil {
			from = append(bytes.Clone(end), 0)
		}
	}
	return nil
}

// compareFirst compares the first keys of two lists, of which one is not empty.
func compareFirst(a, b []row) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return bytes.Compare(a[0].key, b[0].key)
}

// theirs returns rows of the abandoned file, and whether there may be more among them.
func (f *fencer) theirs(bucket, from []byte, limit int) (rows []row, damaged bool) {
	damaged = f.abandoned.Scan(bucket, from, func(k, value []byte) bool {
		rows = append(rows, row{k, value})
		return len(rows) < limit
	})
	return rows, damaged
}

// ours returns rows of the restored file.
func (f *fencer) ours(bucket, from []byte, limit int) (rows []row) {
	_ = f.store.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for k, value := c.Seek(from); k != nil && len(rows) < limit; k, value = c.Next() {
			rows = append(rows, row{bytes.Clone(k), bytes.Clone(value)})
		}
		return nil
	})
	return rows
}

// takeKeys makes keys what they are in the abandoned file: first those that are gone or changed
// go, and then those that are there come, since a value may be another key's by now. Those of known
// that it has are marked.
func (f *fencer) takeKeys(known map[Ref]bool) error {
	err := f.eachPair(bucketKeyIDs, func(b *batch, p pair) error {
		account, id := record.CutPrefixed(p.key)
		if p.theirs == nil {
			if p.unsure {
				return nil
			}
			_, err := f.deleteKey(b, Ref{account, id})
			return err
		}
		key, value := f.theirKey(account, id, p.theirs)
		if value == nil {
			f.unreadable(string(bucketKeys))
			return nil
		}
		if _, asked := known[Ref{account, id}]; asked && !bytes.Equal(p.ours, p.theirs) && !f.abandoned.LastLost() {
			known[Ref{account, id}] = true
		}
		if p.ours == nil || bytes.Equal(p.ours, p.theirs) && bytes.Equal(b.Get(bucketKeys, p.ours), value) && f.hasPrevious(b, &key) {
			return nil
		}
		return f.removeKey(b, p.key)
	})
	if err != nil {
		return err
	}
	return f.eachPair(bucketKeyIDs, func(b *batch, p pair) error {
		account, id := record.CutPrefixed(p.key)
		key, value := f.theirKey(account, id, p.theirs)
		if value == nil {
			return nil
		}
		if uses, _ := f.abandoned.Get(bucketKeyUses, p.key); uses != nil {
			if err := b.Put(bucketKeyUses, p.key, uses); err != nil {
				return err
			}
		}
		if p.ours != nil {
			return nil
		}
		for _, hash := range []apikeys.Hash{key.Hash, key.Previous} {
			if err := f.freeHash(b, hash); err != nil {
				return err
			}
		}
		f.report(&f.info.KeysTaken, Finding{Kind: KeyTaken, Account: account, ID: id})
		if err := putKey(b, key, apikeys.Key{}); err != nil {
			return err
		}
		return b.Put(bucketKeys, p.theirs, value) // also what only a newer version knows
	})
}

// theirKey returns a key of the abandoned file, and its record, or nil if it cannot be read.
func (f *fencer) theirKey(account, id string, hash []byte) (key apikeys.Key, value []byte) {
	value, _ = f.abandoned.Get(bucketKeys, hash)
	if value == nil || len(hash) != len(key.Hash.Sum) || record.DecodeKey(&key, hash, value) != nil || key.Account != account || key.ID != id {
		return key, nil
	}
	return key, value
}

// hasPrevious reports whether the previous value of a key leads to it.
func (f *fencer) hasPrevious(b *batch, key *apikeys.Key) bool {
	return key.Previous.IsZero() || key.Previous == key.Hash || bytes.Equal(b.Get(bucketKeys, key.Previous.Sum[:]), record.EncodeAlias(key.Hash))
}

// freeHash deletes the key that has a value which is another one's in the abandoned file: it is gone
// there, in a part that cannot be read.
func (f *fencer) freeHash(b *batch, hash apikeys.Hash) error {
	current := hash.Sum[:]
	value := b.Get(bucketKeys, current)
	if target, alias := record.DecodeAlias(value); alias {
		current = bytes.Clone(target)
		value = b.Get(bucketKeys, current)
	}
	var key apikeys.Key
	if hash.IsZero() || value == nil || len(current) != len(key.Hash.Sum) || record.DecodeKey(&key, current, value) != nil {
		return nil
	}
	_, err := f.deleteKey(b, Ref{key.Account, key.ID})
	return err
}

// takeWebhooks makes webhooks what they are in the abandoned file: first those that are gone go,
// with what is pending for them, since an id may be another account's by now.
func (f *fencer) takeWebhooks() error {
	err := f.eachPair(bucketWebhooks, func(b *batch, p pair) error {
		if p.theirs != nil || p.unsure {
			return nil
		}
		account, id := record.CutPrefixed(p.key)
		_, err := f.deleteWebhook(b, Ref{account, id})
		return err
	})
	if err != nil {
		return err
	}
	if err := f.store.sweepAll(context.Background()); err != nil {
		return err
	}
	return f.eachNew(bucketWebhooks, func(b *batch, p pair) error {
		account, id := record.CutPrefixed(p.key)
		w, err := record.DecodeWebhook(account, id, p.theirs, f.store.keys)
		if err != nil {
			f.unreadable(string(bucketWebhooks))
			return nil
		}
		if owner := string(b.Get(bucketWebhookIDs, []byte(id))); owner != "" && owner != account { // it is gone, in a part that cannot be read
			if _, err := f.deleteWebhook(b, Ref{owner, id}); err != nil {
				return err
			}
		}
		if err := b.Put(bucketWebhookIDs, []byte(id), []byte(account)); err != nil {
			return err
		}
		f.report(&f.info.WebhooksTaken, Finding{Kind: WebhookTaken, Account: account, ID: id})
		return f.store.putWebhook(b, &w)
	})
}
