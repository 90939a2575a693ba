package notices

import (
	"context"
	"errors"
	"fmt"
)

// A Service reads what happened. It is safe for concurrent use.
type Service struct {
	store Store
}

// New returns a Service on the given store, which stays the caller's to close, after the
// service. It starts nothing.
func New(store Store) (*Service, error) {
	if store == nil {
		return nil, errors.New("notices: nil Store")
	}
	return &Service{store: store}, nil
}

// List returns a part of what happened in the account, newest first: what the host was told
// and what it was not told yet, for as long as webhooks.Retention keeps it. An account of
// which nothing is known has an empty page.
func (s *Service) List(ctx context.Context, account string, query Query) (Page, error) {
	if query.Limit < 1 {
		return Page{}, errors.New("notices: Query.Limit must be at least 1")
	}
	page, err := s.store.ListNotices(ctx, account, query)
	if err != nil {
		return Page{}, fmt.Errorf("list notices: %w", err)
	}
	return page, nil
}
