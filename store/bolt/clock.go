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
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Maximum age of the clock mark in the file: markBusy while deliveries are scheduled for later,
// markIdle otherwise. If the clock is set back while the file is closed, deliveries after the
// restart are late by at most this age.
const (
	markBusy = time.Minute
	markIdle = 10 * time.Minute
)

// loadClock resumes the clock from the mark in the file. If the file has no mark, it uses the time
// of the last event.
func (s *engine) loadClock(lastPublished time.Time) error {
	s.copies.Store(1)
	return s.db.View(func(tx *bbolt.Tx) error {
		var err error
		if s.marked, err = record.DecodeMark(tx.Bucket(schema.Meta).Get(schema.MetaClock)); err != nil {
			s.marked = clock.Mark{Wall: lastPublished, Steady: lastPublished, Sure: lastPublished}
		}
		if !s.marked.Wall.IsZero() {
			s.clock.Resume(s.marked)
		}
		return nil
	})
}

// mark writes a mark of the clock, and increments the number of marks. It does nothing if the last
// mark is younger than age and the clock has not been set since.
func (s *engine) mark(b *batch, age time.Duration) error {
	now, last := s.clock.Mark(), s.marked
	passed := now.Wall.Sub(last.Wall)
	if passed >= 0 && passed < age && (now.Steady.Sub(last.Steady)-passed).Abs() < time.Second {
		return nil
	}
	b.AfterCommit(func() { s.marked = now })
	if err := b.Put(schema.Meta, schema.MetaMarks, record.NumberKey(eventlog.Number(b.tx, schema.MetaMarks)+1)); err != nil {
		return err
	}
	return b.Put(schema.Meta, schema.MetaClock, record.EncodeMark(now))
}

// markCopies marks the clock in the first commit after each copy of the file. Opening the file
// counts as a copy, since it may have been copied while it was closed. Therefore two copies with
// different contents have different numbers of marks.
func (s *engine) markCopies(b *batch) error {
	copies := s.copies.Load()
	if copies == s.copiesMarked {
		return nil
	}
	b.AfterCommit(func() { s.copiesMarked = copies })
	return s.mark(b, 0)
}

// markCopy marks the clock before a copy is made. A halted store cannot write the mark. This is
// harmless, because it writes nothing else either, so the copy cannot become outdated.
func (s *engine) markCopy(ctx context.Context) error {
	err := s.writer.Run(ctx, func(b *batch) error { return s.mark(b, 0) })
	if errors.Is(err, store.ErrReadOnly) {
		return nil
	}
	return err
}

// Doubt returns how much of the elapsed system time a clock jump may have added: see
// [capability.Set]. If the file was closed for more than an hour, all of that time counts as
// doubtful for a day.
func (s *engine) Doubt() time.Duration { return s.clock.Doubt() }
