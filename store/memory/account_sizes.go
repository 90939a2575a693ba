package memory

import (
	"context"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// AccountSizes implements [store.Sizer].
func (s *Store) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	pending := make(map[string]int)
	for _, d := range s.deliveries {
		if d.State == driver.Pending {
			pending[d.event.Account]++
		}
	}
	var sizes []store.AccountSize
	for _, account := range accounts {
		sizes = append(sizes, store.AccountSize{
			Account: account, Keys: len(s.keys[account]), Webhooks: len(s.webhooks[account]), Pending: pending[account],
		})
	}
	return sizes, nil
}
