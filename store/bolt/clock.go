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

// How old the mark of the clock in the file gets, while something is made due later and
// while nothing is. What is due is late by no more after a restart, should the clock have
// been set back while the file was not open.
const (
	markBusy = time.Minute
	markIdle = 10 * time.Minute
)

// loadClock lets the clock go on from where it was marked last, or from when the last event was published.
func (s *Store) loadClock(lastPublished time.Time) error {
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

// mark marks the clock, and counts that, unless the mark in the file is younger than that and it was not
// set since.
func (s *Store) mark(b *batch, age time.Duration) error {
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

// markCopies marks the clock in the first commit after the file was copied, or may have been before it
// was opened: no two copies of different states have the same number of marks.
func (s *Store) markCopies(b *batch) error {
	copies := s.copies.Load()
	if copies == s.copiesMarked {
		return nil
	}
	b.AfterCommit(func() { s.copiesMarked = copies })
	return s.mark(b, 0)
}

// markCopy marks the clock, for a copy that is made now. A store that is halted writes nothing that a
// copy would lack.
func (s *Store) markCopy(ctx context.Context) error {
	err := s.writer.Run(ctx, func(b *batch) error { return s.mark(b, 0) })
	if errors.Is(err, store.ErrReadOnly) {
		return nil
	}
	return err
}

// Doubt returns how much of the time that has passed by the system's clock may not have:
// see [capability.Set]. Time for which the file was not open, more than an hour, is
// doubted for a day.
func (s *Store) Doubt() time.Duration { return s.clock.Doubt() }
