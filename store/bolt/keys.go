package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// CreateKey implements [apikeys.Store].
func (s *Store) CreateKey(ctx context.Context, key apikeys.Key, options apikeys.CreateOptions) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if err := b.checkCredential(key.Account, options.By); err != nil {
			return err
		}
		if err := b.repeated(keyRequest, key.Account, &options); err != nil {
			return err
		}
		switch {
		case b.Get(bucketKeyIDs, prefixed(key.Account, key.ID)) != nil, hashTaken(b, &key, &apikeys.Key{}):
			return apikeys.ErrExists
		case options.MaxCount > 0 && s.keyCensus.of(b.tx, key.Account) >= options.MaxCount:
			return apikeys.ErrLimit
		}
		if err := s.requests.check(b, keyRequest, key.Account, &options); err != nil {
			return err
		}
		s.keyCensus.add(key.Account, 1)
		if err := putKey(b, key, apikeys.Key{}); err != nil {
			return err
		}
		return s.requests.note(b, keyRequest, key.Account, key.ID, &options)
	})
}

// checkCredential returns auth.ErrCredentialChanged if what asks for a creation was rotated or deleted since it was verified.
func (b *batch) checkCredential(account string, by auth.Credential) error {
	if by.IsZero() {
		return nil
	}
	key, _, err := keyByID(b.tx, prefixed(account, by.KeyID))
	if errors.Is(err, apikeys.ErrNotFound) || err == nil && !by.Matches(key.Hash.Sum, key.Previous.Sum) {
		return auth.ErrCredentialChanged
	}
	return err
}

// KeyByHash implements [apikeys.Store]. One lookup finds the record; a previous
// hash takes two.
func (s *Store) KeyByHash(ctx context.Context, hash apikeys.Hash) (key apikeys.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return key, err
	}
	defer s.done(tx, &err)
	err = readKey(tx, &key, hash.Sum[:])
	return key, err
}

func readKey(tx *bbolt.Tx, key *apikeys.Key, hash []byte) error {
	bucket := tx.Bucket(bucketKeys)
	record := bucket.Get(hash)
	if current, ok := isAlias(record); ok {
		hash, record = current, bucket.Get(current)
	}
	if record == nil {
		return apikeys.ErrNotFound
	}
	return decodeKey(key, hash, record)
}

// KeyByID implements [apikeys.Store].
func (s *Store) KeyByID(ctx context.Context, account, id string) (key apikeys.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return key, err
	}
	defer s.done(tx, &err)
	key, _, err = keyByID(tx, prefixed(account, id))
	return key, err
}

// keyByID returns the key with its uses, which are in it as far as it has them.
func keyByID(tx *bbolt.Tx, row []byte) (key apikeys.Key, used uses, err error) {
	hash := tx.Bucket(bucketKeyIDs).Get(row)
	if hash == nil {
		return key, used, apikeys.ErrNotFound
	}
	err = readKey(tx, &key, hash)
	used = decodeUses(tx.Bucket(bucketKeyUses).Get(row))
	key.LastUsedAt, key.PreviousUsedAt = used.any, used.previous
	return key, used, err
}

// ListKeys implements [apikeys.Store].
func (s *Store) ListKeys(ctx context.Context, account string, page apikeys.Page) (keys []apikeys.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	prefix := prefixed(account, "")
	descend(tx.Bucket(bucketKeyIDs), prefix, page.After, func(id, _ []byte) bool {
		var key apikeys.Key
		if key, _, err = keyByID(tx, append(bytes.Clone(prefix), id...)); err != nil {
			return false
		}
		keys = append(keys, key)
		return len(keys) < page.Limit
	})
	return keys, err
}

// UpdateKey implements [apikeys.Store].
func (s *Store) UpdateKey(ctx context.Context, account, id string, change func(*apikeys.Key) error) (apikeys.Key, error) {
	var updated apikeys.Key
	err := s.writer.Run(ctx, func(b *batch) error {
		row := prefixed(account, id)
		old, used, err := keyByID(b.tx, row)
		if err != nil {
			return err
		}
		updated = old
		if err := change(&updated); err != nil {
			return err
		}
		updated.ID, updated.Account, updated.CreatedAt = old.ID, old.Account, old.CreatedAt
		if hashTaken(b, &updated, &old) {
			return apikeys.ErrExists
		}
		if err := putKey(b, updated, old); err != nil {
			return err
		}
		moved := uses{used.any, used.by(&old, updated.Hash), used.by(&old, updated.Previous)}
		if err := putUses(b, row, moved, used); err != nil {
			return err
		}
		updated, _, err = keyByID(b.tx, row) // as it will be read
		return err
	})
	if err != nil {
		return apikeys.Key{}, err
	}
	return updated, nil
}

// DeleteKey implements [apikeys.Store].
func (s *Store) DeleteKey(ctx context.Context, account, id string, check func(apikeys.Key) error) error {
	return s.writer.Run(ctx, func(b *batch) error {
		row := prefixed(account, id)
		key, _, err := keyByID(b.tx, row)
		if err != nil {
			return err
		}
		if check != nil {
			if err := check(key); err != nil {
				return err
			}
		}
		s.keyCensus.add(account, -1)
		if err := b.Delete(bucketKeyIDs, row); err != nil {
			return err
		}
		if err := b.Delete(bucketKeyUses, row); err != nil {
			return err
		}
		return deleteHashes(b, key)
	})
}

// RecordKeyUse implements [apikeys.Store].
func (s *Store) RecordKeyUse(ctx context.Context, list []apikeys.KeyUse) error {
	return s.writer.Run(ctx, func(b *batch) error {
		for _, use := range list {
			row := prefixed(use.Account, use.ID)
			key, before, err := keyByID(b.tx, row)
			if err != nil {
				continue // it is gone, or cannot be read
			}
			used := before
			used.add(&key, use.Hash, use.At.UTC().Truncate(time.Millisecond))
			if err := putUses(b, row, used, before); err != nil {
				return err
			}
		}
		return nil
	})
}

// hashTaken reports whether a hash of the key is that of another one than old.
func hashTaken(b *batch, key, old *apikeys.Key) bool {
	for _, hash := range []apikeys.Hash{key.Hash, key.Previous} {
		own := hash == old.Hash || hash == old.Previous
		if !own && !hash.IsZero() && b.Get(bucketKeys, hash.Sum[:]) != nil {
			return true
		}
	}
	return false
}

// putKey stores the key in place of old, which is zero for a new one.
func putKey(b *batch, key, old apikeys.Key) error {
	if err := deleteHashes(b, old); err != nil {
		return err
	}
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		if err := b.Put(bucketKeys, bytes.Clone(key.Previous.Sum[:]), alias(key.Hash)); err != nil {
			return err
		}
	}
	hash := bytes.Clone(key.Hash.Sum[:])
	if err := b.Put(bucketKeys, hash, encodeKey(&key)); err != nil {
		return err
	}
	return b.Put(bucketKeyIDs, prefixed(key.Account, key.ID), hash)
}

func deleteHashes(b *batch, key apikeys.Key) error {
	for _, hash := range []apikeys.Hash{key.Hash, key.Previous} {
		if hash.IsZero() {
			continue
		}
		if err := b.Delete(bucketKeys, bytes.Clone(hash.Sum[:])); err != nil {
			return err
		}
	}
	return nil
}

// An alias stands where a record would, under a previous hash, and says which is
// the current one. Its first byte is no record's version.
func alias(current apikeys.Hash) []byte { return append([]byte{0}, current.Sum[:]...) }

func isAlias(record []byte) (current []byte, ok bool) {
	if len(record) == 0 || record[0] != 0 {
		return nil, false
	}
	return record[1:], true
}

// A key record is read on every request, so it is laid out to be read fast: a
// head of fixed size, the previous hash if there is one, and the strings
// together at the end, for one allocation. It does not repeat the hash it stands
// under.
const (
	keyVersion  = 0
	keyScopes   = 1 // four bits each, in order
	keyCreated  = keyScopes + 8
	keyExpires  = keyCreated + 8
	keyGrace    = keyExpires + 8 // when the previous hash expires
	keyID       = keyGrace + 8   // lengths
	keyAccount  = keyID + 2
	keyPrevious = keyAccount + 2 // 0 or 1 hashes
	keyHead     = keyPrevious + 1
)

func encodeKey(key *apikeys.Key) []byte {
	record := make([]byte, keyHead, keyHead+len(key.Previous.Sum)+len(key.ID)+len(key.Account)+len(key.Name))
	record[keyVersion] = recordVersion
	shift := 0
	var order uint64
	for scope := range key.Scopes.All() {
		order |= uint64(scope) << shift
		shift += 4
	}
	binary.LittleEndian.PutUint64(record[keyScopes:], order)
	binary.LittleEndian.PutUint64(record[keyCreated:], instant(key.CreatedAt))
	binary.LittleEndian.PutUint64(record[keyExpires:], instant(key.ExpiresAt))
	binary.LittleEndian.PutUint64(record[keyGrace:], instant(key.PreviousExpiresAt))
	binary.LittleEndian.PutUint16(record[keyID:], uint16(len(key.ID)))
	binary.LittleEndian.PutUint16(record[keyAccount:], uint16(len(key.Account)))
	if !key.Previous.IsZero() {
		record[keyPrevious] = 1
		record = append(record, key.Previous.Sum[:]...)
	}
	record = append(record, key.ID...)
	record = append(record, key.Account...)
	return append(record, key.Name...)
}

func decodeKey(key *apikeys.Key, hash, record []byte) error {
	if len(record) < keyHead || record[keyVersion] != recordVersion {
		return errRecord
	}
	copy(key.Hash.Sum[:], hash)
	for order := binary.LittleEndian.Uint64(record[keyScopes:]); order != 0; order >>= 4 {
		key.Scopes = key.Scopes.With(scopes.Scope(order & 15))
	}
	key.CreatedAt = timeOf(binary.LittleEndian.Uint64(record[keyCreated:]))
	key.ExpiresAt = timeOf(binary.LittleEndian.Uint64(record[keyExpires:]))
	key.PreviousExpiresAt = timeOf(binary.LittleEndian.Uint64(record[keyGrace:]))
	id := int(binary.LittleEndian.Uint16(record[keyID:]))
	account := int(binary.LittleEndian.Uint16(record[keyAccount:]))
	rest := record[keyHead:]
	if record[keyPrevious] == 1 && len(rest) >= len(key.Previous.Sum) {
		rest = rest[copy(key.Previous.Sum[:], rest):]
	}
	if id+account > len(rest) {
		return errRecord
	}
	text := string(rest)
	key.ID, key.Account, key.Name = text[:id], text[id:id+account], text[id+account:]
	return nil
}

// noTime stands for the zero time among Unix milliseconds.
const noTime = 1 << 63

func instant(t time.Time) uint64 {
	if t.IsZero() {
		return noTime
	}
	return uint64(t.UnixMilli())
}

func timeOf(instant uint64) time.Time {
	if instant == noTime {
		return time.Time{}
	}
	return time.UnixMilli(int64(instant)).UTC()
}
