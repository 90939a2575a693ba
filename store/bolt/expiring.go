package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

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
	after, before := expiryRow(query.After), timeKey(query.Before)
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
		if err := b.Delete(bucketExpiry, expiryRow(was)); err != nil {
			return err
		}
	}
	if is.At.IsZero() {
		return nil
	}
	return b.Put(bucketExpiry, expiryRow(is), nil)
}

// expiryRow returns the key of a row, whose order is that of time, account and id: no account
// has a 0 in it.
func expiryRow(e apikeys.Expiry) []byte {
	row := timeKey(e.At)
	row = append(append(row, e.Account...), 0)
	return append(row, e.ID...)
}

// timeKey returns milliseconds as a key, whose order is that of times, before 1970 too.
func timeKey(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())^1<<63)
}
