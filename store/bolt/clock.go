package bolt

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// Maximum age of the clock mark in the file, while deliveries are scheduled for later and
// otherwise. If the clock was set back while the file was closed, deliveries are late by at most
// this after a restart.
const (
	markBusy = time.Minute
	markIdle = 10 * time.Minute
)

// loadClock resumes the clock from its last mark, or from the time of the last event if there is no
// mark.
func (s *engine) loadClock(lastPublished time.Time) error {
	s.copies.Store(1)
	return s.db.View(func(tx *bbolt.Tx) error {
		var err error
		if s.marked, err = record.DecodeMark(tx.Bucket(bucketMeta).Get(keyClock)); err != nil {
			s.marked = clock.Mark{Wall: lastPublished, Steady: lastPublished, Sure: lastPublished}
		}
		if !s.marked.Wall.IsZero() {
			s.clock.Resume(s.marked)
		}
		return nil
	})
}

// mark writes and counts a mark of the clock, unless the last mark is younger than age and the
// clock was not set since.
func (s *engine) mark(b *batch, age time.Duration) error {
	now, last := s.clock.Mark(), s.marked
	passed := now.Wall.Sub(last.Wall)
	if passed >= 0 && passed < age && (now.Steady.Sub(last.Steady)-passed).Abs() < time.Second {
		return nil
	}
	b.AfterCommit(func() { s.marked = now })
	if err := b.Put(bucketMeta, keyMarks, record.NumberKey(eventlog.Number(b.tx, keyMarks)+1)); err != nil {
		return err
	}
	return b.Put(bucketMeta, keyClock, record.EncodeMark(now))
}

// markCopies marks the clock in the first commit after a copy of the file. Open counts as a copy,
// since the file may have been copied while closed. So copies of different states have different
// numbers of marks.
func (s *engine) markCopies(b *batch) error {
	copies := s.copies.Load()
	if copies == s.copiesMarked {
		return nil
	}
	b.AfterCommit(func() { s.copiesMarked = copies })
	return s.mark(b, 0)
}

// markCopy marks the clock for a copy that is about to be made. A halted store cannot write the
// mark, but writes nothing that the copy would lack either.
func (s *engine) markCopy(ctx context.Context) error {
	err := s.writer.Run(ctx, func(b *batch) error { return s.mark(b, 0) })
	if errors.Is(err, store.ErrReadOnly) {
		return nil
	}
	return err
}

// Doubt returns how much of the elapsed system time may not have passed: see [capability.Set]. Time
// during which the file was closed is doubted for a day if it was more than an hour.
func (s *engine) Doubt() time.Duration { return s.clock.Doubt() }
