package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/notices"
)

// errNoNotices is returned by what is not here yet: this store keeps no notices.
var errNoNotices = errors.New("this store keeps no notices yet")

// KeepsNoNotices lets package storetest pass over the tests of notices.
func (s *Store) KeepsNoNotices() {}

// AddNotices implements [notices.Store].
func (s *Store) AddNotices(context.Context, []notices.Notice) (added int, err error) {
	return 0, errNoNotices
}

// ListNotices implements [notices.Store].
func (s *Store) ListNotices(context.Context, string, notices.Query) (notices.Page, error) {
	return notices.Page{}, errNoNotices
}

// PendingNotices implements [notices.Store].
func (s *Store) PendingNotices(context.Context, uint64, int) ([]notices.Numbered, error) {
	return nil, errNoNotices
}

// TakeNotices implements [notices.Store].
func (s *Store) TakeNotices(context.Context, []uint64) error { return errNoNotices }

// LeaseNotices implements [notices.Store].
func (s *Store) LeaseNotices(context.Context, string, time.Duration) (held bool, err error) {
	return false, errNoNotices
}
