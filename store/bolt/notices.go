package bolt

import (
	"context"

	"github.com/storageapi/storageapi/webhooks"
)

// noticeKey returns the key of a notice, which begins with when it may go.
func noticeKey(account string, n *webhooks.Notice) []byte {
	return append(seqKey(uint64(n.Until.UnixMilli())), prefixed(account, n.Key)...)
}

// NewNotices implements [webhooks.Store].
func (s *Store) NewNotices(ctx context.Context, account string, notices []webhooks.Notice) (fresh []int, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	rows := tx.Bucket(bucketNotices)
	for i := range notices {
		if rows.Get(noticeKey(account, &notices[i])) == nil {
			fresh = append(fresh, i)
		}
	}
	return fresh, nil
}

// EnqueueNotices implements [webhooks.Store].
func (s *Store) EnqueueNotices(ctx context.Context, event webhooks.Envelope, notices []webhooks.Notice) (deliveries int, err error) {
	p, keys := newPublication(&event), make([][]byte, len(notices))
	defer p.release()
	for i := range notices {
		keys[i] = noticeKey(event.Account, &notices[i])
	}
	err = s.writer.run(ctx, func(b *batch) error {
		for _, key := range keys {
			if b.get(bucketNotices, key) != nil {
				return webhooks.ErrExists
			}
		}
		for _, key := range keys {
			if err := b.put(bucketNotices, key, newEncoder(0)); err != nil {
				return err
			}
		}
		deliveries, _, err = s.enqueue(b, p, "")
		return err
	})
	return deliveries, err
}
