package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Now implements [driver.WebhookStore].
func (s *engine) Now(ctx context.Context) (time.Time, error) {
	tx, err := s.view(ctx) // fails if the store is closed
	if err != nil {
		return time.Time{}, err
	}
	return s.clock.Time(), tx.Rollback()
}

// Purge implements [driver.WebhookStore]. It also indexes complete runs, removes rows left by
// deleted webhooks, marks the clock, and keeps the free list and the root bucket short.
func (s *engine) Purge(ctx context.Context, purge driver.Purge) (more bool, err error) {
	if more, err = s.purgeStep(ctx, purge); err != nil {
		return more, err
	}
	parks := s.park(ctx, more)
	if !more && !parks {
		s.mergeRoot(ctx)
	}
	return more || parks, nil
}

// park parks free pages, and reports whether there may be more pages to park. It ignores errors,
// because commits still work with a longer free list.
func (s *engine) park(ctx context.Context, purging bool) (more bool) {
	if !s.parking.IsLong(purging) {
		return false
	}
	err := s.writer.RunAlone(ctx, func(b *batch) (err error) {
		more, err = b.parking.Park(purging)
		return err
	})
	return more && (err == nil || parking.DidNotFit(err))
}

// mergeRoot merges the pages of the root bucket. It uses a separate transaction, because other
// steps use cursors in small buckets. It ignores errors: a later call tries again, and commits
// still work with a split root.
func (s *engine) mergeRoot(ctx context.Context) {
	_ = s.writer.RunAlone(ctx, func(b *batch) error { return pagefile.MergeRoot(b.tx, b.MarkWritten) })
}

func (s *engine) purgeStep(ctx context.Context, purge driver.Purge) (more bool, err error) {
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

// purge does the work of Purge within a transaction.
func (s *engine) purge(b *batch, purge *driver.Purge) (more bool, err error) {
	if err := b.Flush(); err != nil {
		return false, err
	}
	if indexed, err := b.log.Index(); indexed || err != nil {
		return true, err
	}
	if err := s.marks.mark(b.Tx, markIdle); err != nil {
		return false, err
	}
	left := purge.Limit
	ended, err := b.log.Purge(purge, &left)
	if err != nil {
		return false, err
	}
	b.AfterCommit(func() { s.feed.Ended(ended) })
	if left <= 0 {
		return true, nil
	}
	for _, step := range []func() error{
		func() error { return purgeRecoveries(b, purge.Attempts, &left) },
		func() error {
			return b.DeleteBefore(schema.DedupKeys, uint64(max(purge.DedupKeys.UnixMilli(), 0)), &left)
		},
		func() error { return b.audit.Purge(purge.AuditEntries, s.clock.Ahead, &left) },
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
