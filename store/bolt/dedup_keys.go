package bolt

import (
	"context"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// dedupKeyOf returns the key of a deduplication key, which begins with when it may go.
func dedupKeyOf(account string, n *webhooks.DedupKey) []byte {
	return append(record.NumberKey(uint64(n.Until.UnixMilli())), record.Prefixed(account, n.Key)...)
}

// UnseenKeys implements [webhooks.Store].
func (s *Store) UnseenKeys(ctx context.Context, account string, dedupKeys []webhooks.DedupKey) (fresh []int, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	rows := tx.Bucket(bucketDedupKeys)
	for i := range dedupKeys {
		if rows.Get(dedupKeyOf(account, &dedupKeys[i])) == nil {
			fresh = append(fresh, i)
		}
	}
	return fresh, nil
}

// EnqueueOnce implements [webhooks.Store].
func (s *Store) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []webhooks.DedupKey) (deliveries int, err error) {
	e, keys := s.log.NewEvent(&event), make([][]byte, len(dedupKeys))
	defer e.Release()
	for i := range dedupKeys {
		keys[i] = dedupKeyOf(event.Account, &dedupKeys[i])
	}
	err = s.writer.Run(ctx, func(b *batch) error {
		if b.isErasing(event.Account) {
			return auth.ErrErasing
		}
		for _, key := range keys {
			if b.Get(bucketDedupKeys, key) != nil {
				return webhooks.ErrExists
			}
		}
		for _, key := range keys {
			if err := b.Put(bucketDedupKeys, key, record.Empty()); err != nil {
				return err
			}
		}
		deliveries, _, err = s.enqueue(b, e, "")
		return err
	})
	return deliveries, err
}
