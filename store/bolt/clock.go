package bolt

import (
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Maximum age of the clock mark in the file: markBusy when a due time is stored, markIdle when a
// service purges. If the clock is set back while the file is closed, deliveries after the restart
// are late by at most the age of the mark.
const (
	markBusy = time.Minute
	markIdle = 10 * time.Minute
)

// A marker writes marks of the clock to the file. Only write transactions and Open may use its
// fields, except the field copies.
type marker struct {
	clock *clock.Clock
	last  clock.Mark // the mark in the file

	// copies counts the copies of the file that have begun. Opening the file counts as a copy,
	// since it may have been copied while it was closed.
	copies       atomic.Uint64
	copiesMarked uint64 // value of copies at the last mark, see [marker.markCopies]
}

// load resumes the clock from the mark in the file. If the file has no mark, it uses the time of
// the last event. Transactions before load write no mark, because copies is still 0.
func (m *marker) load(db *bbolt.DB, lastPublished time.Time) error {
	m.copies.Store(1)
	return db.View(func(tx *bbolt.Tx) error {
		var err error
		if m.last, err = record.DecodeMark(tx.Bucket(schema.Meta).Get(schema.MetaClock)); err != nil {
			m.last = clock.Mark{Wall: lastPublished, Steady: lastPublished, Sure: lastPublished}
		}
		if !m.last.Wall.IsZero() {
			m.clock.Resume(m.last)
		}
		return nil
	})
}

// mark writes a mark of the clock, and increments the number of marks. It does nothing if the last
// mark is younger than age and the clock has not been set since.
func (m *marker) mark(tx *groupcommit.Tx, age time.Duration) error {
	now, last := m.clock.Mark(), m.last
	passed := now.Wall.Sub(last.Wall)
	if passed >= 0 && passed < age && (now.Steady.Sub(last.Steady)-passed).Abs() < time.Second {
		return nil
	}
	tx.AfterCommit(func() { m.last = now })
	if err := tx.Put(schema.Meta, schema.MetaMarks, record.NumberKey(eventlog.Number(tx.Bolt, schema.MetaMarks)+1)); err != nil {
		return err
	}
	return tx.Put(schema.Meta, schema.MetaClock, record.EncodeMark(now))
}

// markCopies marks the clock in the first commit after each copy of the file. Therefore two copies
// with different contents have different numbers of marks.
func (m *marker) markCopies(tx *groupcommit.Tx) error {
	copies := m.copies.Load()
	if copies == m.copiesMarked {
		return nil
	}
	tx.AfterCommit(func() { m.copiesMarked = copies })
	return m.mark(tx, 0)
}
