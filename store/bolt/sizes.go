package bolt

import (
	"bytes"
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// AccountSizes implements [store.Sizer]. It counts each account in a separate read transaction,
// because a long one would prevent the reuse of freed pages.
func (s *engine) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	pending := make(map[string]int) // by webhook
	err := s.eachPending(ctx, everything, func(_ time.Time, d driver.PendingDelivery) { pending[d.Webhook.ID]++ })
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
	eachKey(tx.Bucket(bucketAccounts), record.AccountKey(account, ""), func([]byte) { size.Keys++ })
	eachKey(tx.Bucket(bucketWebhooks), record.Prefixed(account, ""), func(id []byte) {
		size.Webhooks++
		size.Pending += pending[string(id)]
	})
	return size, nil
}

// eachKey calls visit with the rest of each key that begins with prefix.
func eachKey(bucket *bbolt.Bucket, prefix []byte, visit func(tail []byte)) {
	c := bucket.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		visit(k[len(prefix):])
	}
}

func (s *engine) FileSize() (bytes, free int64) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, 0
	}
	return info.Size(), s.parking.freeBytes()
}
