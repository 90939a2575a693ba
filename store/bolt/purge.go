package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// Now implements [webhooks.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	tx, err := s.view(ctx) // says whether the store is closed
	if err != nil {
		return time.Time{}, err
	}
	return s.clock.Time(), tx.Rollback()
}

// Purge implements [webhooks.Store]. It indexes complete runs, too, removes the rows
// of webhooks that were deleted, marks the clock, and keeps the list of free pages and the bucket of all
// buckets short.
func (s *Store) Purge(ctx context.Context, purge webhooks.Purge) (more bool, err error) {
	if more, err = s.purgeStep(ctx, purge); err != nil {
		return more, err
	}
	parking := s.park(ctx, more)
	if !more && !parking {
		s.mergeRoot(ctx)
	}
	return more || parking, nil
}

func (s *Store) purgeStep(ctx context.Context, purge webhooks.Purge) (more bool, err error) {
	purge = purge.Doubting(s.clock.Doubt())
	sweeping, err := s.sweep(ctx, purge.Limit, func(b *batch, removed int) error {
		if more = removed >= purge.Limit; more {
			return nil
		}
		rest := purge
		rest.Limit -= removed
		var err error
		more, err = s.purge(b, &rest)
		return err
	})
	return more || sweeping, err
}

// purge takes a step.
func (s *Store) purge(b *batch, purge *webhooks.Purge) (more bool, err error) {
	if err := b.Flush(); err != nil {
		return false, err
	}
	if indexed, err := b.log.Index(); indexed || err != nil {
		return true, err
	}
	if err := s.mark(b, markIdle); err != nil {
		return false, err
	}
	left := purge.Limit
	ended, err := b.log.Purge(purge, &left)
	if err != nil {
		return false, err
	}
	b.AfterCommit(func() { s.feed.ended(ended) })
	if left <= 0 {
		return true, nil
	}
	for _, step := range []func() error{
		func() error { return purgeRecoveries(b, purge.Attempts, &left) },
		func() error {
			return b.DeleteBefore(bucketDedupKeys, uint64(max(purge.DedupKeys.UnixMilli(), 0)), &left)
		},
		func() error { return s.purgeNotices(b, purge.Notices, &left) },
	} {
		if err := step(); err != nil {
			return false, err
		}
		if left <= 0 {
			return true, nil
		}
	}
	return false, nil
}
