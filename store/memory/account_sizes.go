package memory

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store"
)

// AccountSizes implements [store.Sizer].
func (s *Store) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := time.Now()
	var sizes []store.AccountSize
	for _, account := range accounts {
		size := store.AccountSize{Account: account, Keys: len(s.keys[account]), Webhooks: len(s.webhooks[account])}
		for _, row := range s.webhooks[account] {
			size.Pending += s.queue.Backlog(now, row.id).Pending
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}
