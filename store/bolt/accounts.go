package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/feed"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Accounts implements [transfer.Store].
func (s *engine) Accounts(ctx context.Context, after string, limit int) (accounts []string, err error) {
	if err := s.flushAlerts(ctx); err != nil && !errors.Is(err, store.ErrReadOnly) {
		return nil, err
	}
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	for _, bucket := range [][]byte{schema.Accounts, schema.Webhooks, schema.Alerts} {
		counts := func(row []byte) bool { return true }
		if bytes.Equal(bucket, schema.Accounts) { // if an account has keys, its first row is a key
			counts = func(row []byte) bool {
				_, _, isKey := record.CutAccountKey(row)
				return isKey
			}
		}
		accounts = append(accounts, s.accountsOf(tx.Bucket(bucket).Cursor(), counts, after, limit)...)
	}
	slices.Sort(accounts)
	accounts = slices.Compact(accounts)
	return accounts[:min(limit, len(accounts))], nil
}

// accountsOf returns accounts greater than after from a bucket whose keys begin with the account.
// It skips accounts for which counts returns false when called with the first row. The result
// includes the limit smallest such accounts, and may include more: the bucket is sorted by the
// length of the account first, so accountsOf reads up to limit accounts of each length.
func (s *engine) accountsOf(c *bbolt.Cursor, counts func(row []byte) bool, after string, limit int) (accounts []string) {
	for first, _ := c.First(); first != nil; {
		length, _ := binary.Uvarint(first)
		begin := binary.AppendUvarint(nil, length)
		k, _ := c.Seek(append(bytes.Clone(begin), after[:min(len(after), int(length))]...))
		for found := 0; bytes.HasPrefix(k, begin) && found < limit; {
			account, _ := record.CutPrefixed(k)
			if account > after && !s.erasing.has(account) && counts(k) {
				accounts = append(accounts, account)
				found++
			}
			k = rows.SeekBeyond(c, k, append(record.Prefixed(account, ""), rows.Beyond...))
		}
		first = rows.SeekBeyond(c, first, binary.AppendUvarint(nil, length+1))
	}
	return accounts
}

// AccountSizes implements [store.Sizer]. It counts each account in a separate read transaction,
// because a long transaction would prevent the reuse of freed pages.
func (s *engine) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	pending := make(map[string]int) // by webhook
	err := s.eachPending(ctx, feed.Everything(math.MaxUint64), func(_ time.Time, d driver.PendingDelivery) { pending[d.Webhook.ID]++ })
	if err != nil {
		return nil, err
	}
	var sizes []store.AccountSize
	for _, account := range accounts {
		size, err := s.accountSize(ctx, account, pending)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func (s *engine) accountSize(ctx context.Context, account string, pending map[string]int) (size store.AccountSize, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return size, err
	}
	defer s.done(tx, catchFaults(), &err)
	size.Account = account
	size.Keys = rows.Count(tx.Bucket(schema.Accounts), record.AccountKey(account, ""))
	prefix := record.Prefixed(account, "")
	for k := range rows.WithPrefix(tx.Bucket(schema.Webhooks), prefix) {
		size.Webhooks++
		size.Pending += pending[string(k[len(prefix):])]
	}
	return size, nil
}
