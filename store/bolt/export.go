package bolt

import (
	"context"
	"errors"

	"github.com/storageapi/storageapi/store/transfer"
)

// Accounts implements [transfer.Store]: not yet.
func (s *Store) Accounts(context.Context, string, int) ([]string, error) {
	return nil, errors.ErrUnsupported
}

// Export implements [transfer.Store]: not yet.
func (s *Store) Export(context.Context, string, string, int) (transfer.Page, error) {
	return transfer.Page{}, errors.ErrUnsupported
}

// Import implements [transfer.Store]: not yet.
func (s *Store) Import(context.Context, []transfer.Record) error { return errors.ErrUnsupported }
