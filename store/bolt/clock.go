package bolt

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// How old the mark of the clock in the file gets, while something is made due later and
// while nothing is. What is due is late by no more after a restart, should the clock have
// been set back while the file was not open.
const (
	markBusy = time.Minute
	markIdle = 10 * time.Minute
)

// loadClock lets the clock go on from where it was marked last.
func (s *Store) loadClock() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		var err error
		if s.marked, err = record.DecodeMark(tx.Bucket(bucketMeta).Get(keyClock)); err != nil {
			// As if it had been marked when the last event was published.
			s.marked = clock.Mark{Wall: s.lastPublished, Steady: s.lastPublished, Sure: s.lastPublished}
		}
		if !s.marked.Wall.IsZero() {
			s.clock.Resume(s.marked)
		}
		return nil
	})
}

// mark marks the clock, unless the mark in the file is younger than that and it was not
// set since.
func (s *Store) mark(b *batch, age time.Duration) error {
	now, last := s.clock.Mark(), s.marked
	passed := now.Wall.Sub(last.Wall)
	if passed >= 0 && passed < age && (now.Steady.Sub(last.Steady)-passed).Abs() < time.Second {
		return nil
	}
	b.AfterCommit(func() { s.marked = now })
	return b.Put(bucketMeta, keyClock, record.EncodeMark(now))
}

// Doubt returns how much of the time that has passed by the system's clock may not have:
// see [webhooks.Doubter]. Time for which the file was not open, more than an hour, is
// doubted for a day.
func (s *Store) Doubt() time.Duration { return s.clock.Doubt() }
