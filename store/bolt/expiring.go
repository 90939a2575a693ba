package bolt

import (
	"bytes"
	"context"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// ExpiringKeys implements [apikeys.Store]. One that cannot be read is left out: no value is
// its own.
func (s *Store) ExpiringKeys(ctx context.Context, query apikeys.ExpiryQuery) (list []apikeys.Key, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	after, before := record.ExpiryKey(query.After), record.TimeKey(query.Before)
	c := tx.Bucket(bucketExpiry).Cursor()
	row, _ := c.Seek(after)
	if bytes.Equal(row, after) {
		row, _ = c.Next()
	}
	for ; row != nil && bytes.Compare(row[:min(8, len(row))], before) < 0 && len(list) < query.Limit; row, _ = c.Next() {
		account, id, _ := bytes.Cut(row[min(8, len(row)):], []byte{0})
		if s.erasing.has(string(account)) {
			continue
		}
		if key, _, unreadable := keyByID(tx, record.Prefixed(string(account), string(id))); unreadable == nil {
			list = append(list, key)
		}
	}
	return list, nil
}

// listExpiry has key found by when it expires, instead of old.
func (b *batch) listExpiry(key, old *apikeys.Key) error {
	is, was := apikeys.ExpiryOf(key), apikeys.ExpiryOf(old)
	if is.At.Equal(was.At) {
		return nil
	}
	if !was.At.IsZero() {
		if err := b.Delete(bucketExpiry, record.ExpiryKey(was)); err != nil {
			return err
		}
	}
	if is.At.IsZero() {
		return nil
	}
	return b.Put(bucketExpiry, record.ExpiryKey(is), nil)
}
