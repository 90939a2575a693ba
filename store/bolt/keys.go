package bolt

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateKey implements [driver.KeyStore].
func (s *engine) CreateKey(ctx context.Context, key driver.Key, options driver.CreateOptions) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if err := b.checkCredential(key.Account, options.By); err != nil {
			return err
		}
		if b.isErasing(key.Account) {
			return auth.ErrErasing
		}
		if err := requests.Repeated(b.tx, requests.Key, key.Account, &options); err != nil {
			return err
		}
		switch {
		case b.Get(schema.Accounts, record.AccountKey(key.Account, key.ID)) != nil, hashTaken(b, &key, &driver.Key{}):
			return apierr.ErrExists
		case options.MaxCount > 0 && s.keyCounts.of(b.Tx, key.Account) >= options.MaxCount:
			return apierr.ErrLimit
		}
		if err := s.requests.Check(b.Tx, requests.Key, key.Account, &options); err != nil {
			return err
		}
		s.keyCounts.add(b.Tx, key.Account, 1)
		if err := putKey(b, key, driver.Key{}); err != nil {
			return err
		}
		if err := b.tell(options.AuditEntry); err != nil {
			return err
		}
		return s.requests.Note(b.Tx, requests.Key, key.Account, key.ID, &options)
	})
}

// checkCredential returns [auth.ErrCredentialChanged] if the key that authenticated the request
// was rotated, disabled or deleted after its verification.
func (b *batch) checkCredential(account string, by auth.Credential) error {
	if by.IsZero() {
		return nil
	}
	key, _, err := keyByID(b.tx, record.AccountKey(account, by.KeyID))
	if b.isErasing(account) || errors.Is(err, apierr.ErrNotFound) || err == nil && !key.Accepts(by) {
		return auth.ErrCredentialChanged
	}
	return err
}

// KeyByHash implements [driver.KeyStore]. Recently used hashes are cached. Otherwise KeyByHash
// makes one lookup in the file, or two for a previous hash.
func (s *engine) KeyByHash(ctx context.Context, hash driver.Hash) (key driver.Key, err error) {
	if err := ctx.Err(); err != nil {
		return key, err
	}
	row, ok := s.keyRows.Get(hash)
	if !ok {
		version := s.keyRows.Version()
		if row, err = s.readKeyRow(ctx, hash.Sum[:]); err != nil {
			return key, err
		}
		s.keyRows.Fill(hash, row, version)
	}
	if err := record.DecodeKeyRow(&key, hash.Sum[:], row); err != nil {
		return driver.Key{}, err
	}
	if s.erasing.has(key.Account) {
		return driver.Key{}, apierr.ErrNotFound
	}
	return key, nil
}

func (s *engine) readKeyRow(ctx context.Context, hash []byte) (row string, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return "", err
	}
	defer s.done(tx, catchFaults(), &err)
	return keyRow(tx, hash)
}

// keyRow returns the row of a current or previous hash, in the form that [record.DecodeKeyRow]
// expects.
func keyRow(tx *bbolt.Tx, hash []byte) (string, error) {
	bucket := tx.Bucket(schema.Keys)
	value := bucket.Get(hash)
	var alias []byte
	if current, ok := record.DecodeAlias(value); ok {
		alias, value = value, bucket.Get(current)
	}
	if value == nil {
		return "", apierr.ErrNotFound
	}
	if alias == nil {
		return string(value), nil
	}
	return string(alias) + string(value), nil
}

func readKey(tx *bbolt.Tx, key *driver.Key, hash []byte) error {
	row, err := keyRow(tx, hash)
	if err != nil {
		return err
	}
	return record.DecodeKeyRow(key, hash, row)
}

// KeyByID implements [driver.KeyStore].
func (s *engine) KeyByID(ctx context.Context, account, id string) (key driver.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return key, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return key, apierr.ErrNotFound
	}
	key, _, err = keyByID(tx, record.AccountKey(account, id))
	return key, err
}

// keyByID returns a key and its uses, some of which are also fields of the key.
func keyByID(tx *bbolt.Tx, row []byte) (key driver.Key, used record.Uses, err error) {
	value := tx.Bucket(schema.Accounts).Get(row)
	if value == nil {
		return key, used, apierr.ErrNotFound
	}
	err = readKey(tx, &key, record.DecodeAccountRow(value).Hash)
	used = record.DecodeUses(tx.Bucket(schema.KeyUses).Get(row))
	key.LastUsedAt, key.PreviousUsedAt, key.Activity = used.Any, used.Previous, used.Activity
	return key, used, err
}

// ListKeys implements [driver.KeyStore].
func (s *engine) ListKeys(ctx context.Context, account string, page driver.ListQuery) (keys []driver.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return nil, nil
	}
	prefix := record.AccountKey(account, "")
	after := record.AccountKey(account, page.After)[len(prefix):]
	for id := range rows.Descend(tx.Bucket(schema.Accounts), prefix, string(after)) {
		key, _, err := keyByID(tx, append(bytes.Clone(prefix), id...))
		if err != nil {
			return keys, err
		}
		if keys = append(keys, key); len(keys) >= page.Limit {
			break
		}
	}
	return keys, nil
}

// UpdateKey implements [driver.KeyStore].
func (s *engine) UpdateKey(ctx context.Context, account, id string, change func(*driver.Key, *audit.Entry) error) (driver.Key, error) {
	var updated driver.Key
	err := s.writer.Run(ctx, func(b *batch) error {
		if b.isErasing(account) {
			return apierr.ErrNotFound
		}
		row := record.AccountKey(account, id)
		old, used, err := keyByID(b.tx, row)
		if err != nil {
			return err
		}
		updated = old
		var entry audit.Entry
		if err := change(&updated, &entry); err != nil {
			return err
		}
		updated.ID, updated.Account, updated.CreatedAt, updated.CreatedBy = old.ID, old.Account, old.CreatedAt, old.CreatedBy
		if hashTaken(b, &updated, &old) {
			return apierr.ErrExists
		}
		if err := putKey(b, updated, old); err != nil {
			return err
		}
		moved := record.Uses{Any: used.Any, Current: used.By(&old, updated.Hash), Previous: used.By(&old, updated.Previous), Activity: used.Activity}
		if err := putUses(b, row, moved, used); err != nil {
			return err
		}
		if err := b.tell(entry); err != nil {
			return err
		}
		updated, _, err = keyByID(b.tx, row) // as later reads will return it
		return err
	})
	if err != nil {
		return driver.Key{}, err
	}
	return updated, nil
}

// DeleteKey implements [driver.KeyStore].
func (s *engine) DeleteKey(ctx context.Context, account, id string, check func(driver.Key) error, entry audit.Entry) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if b.isErasing(account) {
			return apierr.ErrNotFound
		}
		row := record.AccountKey(account, id)
		key, _, err := keyByID(b.tx, row)
		if err != nil {
			return err
		}
		if check != nil {
			if err := check(key); err != nil {
				return err
			}
		}
		if err := b.tell(entry); err != nil {
			return err
		}
		if err := s.requests.ForgetOf(b.Tx, account, id); err != nil {
			return err
		}
		last := auditlog.Last(b.tx, row)
		if err := s.removeKey(b, row, key); err != nil || last == 0 {
			return err
		}
		return b.audit.SetLast(record.AuditEntriesOfTarget(account, audit.Target{Kind: audit.TargetKey, ID: id}), last)
	})
}

// removeKey removes a key with its hashes and times of use, but not its audit entries.
func (s *engine) removeKey(b *batch, row []byte, key driver.Key) error {
	s.keyCounts.add(b.Tx, key.Account, -1)
	if err := b.Delete(schema.Accounts, row); err != nil {
		return err
	}
	if err := b.Delete(schema.KeyUses, row); err != nil {
		return err
	}
	if err := b.listExpiry(&driver.Key{}, &key); err != nil {
		return err
	}
	return deleteHashes(b, key)
}

// RecordKeyUse implements [driver.KeyStore].
func (s *engine) RecordKeyUse(ctx context.Context, list []driver.KeyUse) error {
	return s.writer.Run(ctx, func(b *batch) error {
		for _, use := range list {
			row := record.AccountKey(use.Account, use.ID)
			key, before, err := keyByID(b.tx, row)
			if err != nil {
				continue // deleted, or unreadable
			}
			used := before
			used.Add(&key, use.Hash, use.At.UTC().Truncate(time.Millisecond), use.Activity)
			if err := putUses(b, row, used, before); err != nil {
				return err
			}
		}
		return nil
	})
}

// hashTaken reports whether a key other than old has one of key's hashes.
func hashTaken(b *batch, key, old *driver.Key) bool {
	for _, hash := range []driver.Hash{key.Hash, key.Previous} {
		own := hash == old.Hash || hash == old.Previous
		if !own && !hash.IsZero() && b.Get(schema.Keys, hash.Sum[:]) != nil {
			return true
		}
	}
	return false
}

// putKey replaces old with key; old is zero for a new key.
func putKey(b *batch, key, old driver.Key) error {
	var fields []byte
	if !old.Hash.IsZero() {
		fields = bytes.Clone(record.KeyFields(b.Get(schema.Keys, old.Hash.Sum[:])))
	}
	if err := deleteHashes(b, old); err != nil {
		return err
	}
	if err := b.listExpiry(&key, &old); err != nil {
		return err
	}
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		b.keyRows.Drop(b, key.Previous)
		if err := b.Put(schema.Keys, bytes.Clone(key.Previous.Sum[:]), record.EncodeAlias(key.Hash)); err != nil {
			return err
		}
	}
	b.keyRows.Drop(b, key.Hash)
	hash := bytes.Clone(key.Hash.Sum[:])
	if err := b.Put(schema.Keys, hash, append(record.EncodeKey(&key), fields...)); err != nil {
		return err
	}
	return putAccountKey(b, &key, hash)
}

// accountsFill is the fraction of a page of schema.Accounts, and of schema.KeyUses, that a split
// leaves in the first page. The IDs of an account's keys ascend, so with bbolt's default of 0.5,
// the pages of a large account would be half full. With 0.95, the pages of many small accounts
// would be a third full.
const accountsFill = 0.75

// putAccountKey stores the key's hash in its row in schema.Accounts. The row also holds the number
// of the key's last audit entry. A new key takes over the audit entries of a deleted key with the
// same ID.
func putAccountKey(b *batch, key *driver.Key, hash []byte) error {
	row := record.AccountKey(key.Account, key.ID)
	before := auditlog.TargetRow(b.tx, key.Account, audit.Target{Kind: audit.TargetKey, ID: key.ID})
	value := record.AccountRow{Hash: hash, Last: auditlog.Last(b.tx, before)}
	if value.Last > 0 && !bytes.Equal(before, row) {
		if err := b.Delete(schema.Accounts, before); err != nil {
			return err
		}
	}
	b.tx.Bucket(schema.Accounts).FillPercent = accountsFill
	return b.Put(schema.Accounts, row, value.Encode())
}

func deleteHashes(b *batch, key driver.Key) error {
	for _, hash := range []driver.Hash{key.Hash, key.Previous} {
		if hash.IsZero() {
			continue
		}
		b.keyRows.Drop(b, hash)
		if err := b.Delete(schema.Keys, bytes.Clone(hash.Sum[:])); err != nil {
			return err
		}
	}
	return nil
}

// putUses stores the uses of a key if they have changed.
func putUses(b *batch, row []byte, used, before record.Uses) error {
	if used == before {
		return nil
	}
	b.tx.Bucket(schema.KeyUses).FillPercent = accountsFill
	return b.Put(schema.KeyUses, row, used.Encode())
}

// ExpiringKeys implements [driver.KeyStore]. It omits unreadable keys, whose tokens are invalid.
func (s *engine) ExpiringKeys(ctx context.Context, query driver.ExpiryQuery) (list []driver.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	after, before := record.ExpiryKey(query.After), record.TimeKey(query.Before)
	c := tx.Bucket(schema.Expiry).Cursor()
	row, _ := c.Seek(after)
	if bytes.Equal(row, after) {
		row, _ = c.Next()
	}
	for ; row != nil && bytes.Compare(row[:min(8, len(row))], before) < 0 && len(list) < query.Limit; row, _ = c.Next() {
		account, id, _ := bytes.Cut(row[min(8, len(row)):], []byte{0})
		if s.erasing.has(string(account)) {
			continue
		}
		if key, _, unreadable := keyByID(tx, record.AccountKey(string(account), string(id))); unreadable == nil {
			list = append(list, key)
		}
	}
	return list, nil
}

// listExpiry replaces old's row in schema.Expiry with a row for key. A key that does not expire has
// no row there.
func (b *batch) listExpiry(key, old *driver.Key) error {
	is, was := driver.ExpiryOf(key), driver.ExpiryOf(old)
	if is.At.Equal(was.At) {
		return nil
	}
	if !was.At.IsZero() {
		if err := b.Delete(schema.Expiry, record.ExpiryKey(was)); err != nil {
			return err
		}
	}
	if is.At.IsZero() {
		return nil
	}
	return b.Put(schema.Expiry, record.ExpiryKey(is), nil)
}
