package eventlog

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Options connect the log to the rest of the store.
type Options struct {
	Clock      *clock.Clock
	Cursors    cursor.Key                // encodes positions in lists
	WebhookIDs []byte                    // the bucket whose keys are the IDs of all webhooks
	Erasing    func(account string) bool // reports whether readers must not see anything of an account
}

// A Log is the event log of a file.
type Log struct {
	options   Options
	ids       idIndex
	published publishCache
}

// A Writer has the state of a log that only steps of the file's writer may touch. A step reaches
// it through its [Step] alone.
type Writer struct {
	log  *Log
	ids  idWriter
	page int // bytes of a page of the file

	segment  record.SegmentBuilder // its memory serves one batch after the other
	attempts record.Packer

	lastPublished      time.Time // when the last event was published
	committedPublished time.Time // lastPublished, as of the last commit
	divided            uint64    // the number after which the dividers are; 0: none
}

// Open returns the log of a file. It reads the IDs of events.
func Open(db *bbolt.DB, o Options) (*Log, *Writer, error) {
	l := &Log{options: o}
	w := &Writer{log: l, page: db.Info().PageSize}
	if err := w.loadNewest(db); err != nil {
		return nil, nil, err
	}
	return l, w, w.loadIDs(db)
}

// Begin returns the Step of a transaction. markClock marks the clock of the file, by which
// deliveries are due.
func (w *Writer) Begin(tx *groupcommit.Tx, markClock func() error) *Step {
	w.ids.begin()
	w.segment.Reset()
	w.attempts.Reset()
	return &Step{
		Tx: tx, tx: tx.Bolt, log: w.log, writer: w, markClock: markClock,
		fresh: bitmaps{bucket: schema.Fresh}, skipped: bitmaps{bucket: schema.Skipped},
	}
}

// Ended must be called after each transaction. done reports whether it was committed.
func (w *Writer) Ended(done bool) {
	if done {
		w.committedPublished = w.lastPublished
	} else {
		w.lastPublished = w.committedPublished
	}
}

// LastPublished returns when the newest event was published, as far as it is known; zero if there
// is none.
func (w *Writer) LastPublished() time.Time { return w.lastPublished }

// A Step changes the log, in a transaction that the steps of a group commit share. What
// is written once for many steps is in memory until Flush: a step that reads it flushes before.
type Step struct {
	*groupcommit.Tx
	tx        *bbolt.Tx // for reading
	log       *Log
	writer    *Writer
	markClock func() error

	late           []row  // attempts that are not packed
	published      int    // bytes in schema.Events since the dividers were moved
	divided        uint64 // the number after which they are; 0: as in the Writer
	fresh, skipped bitmaps

	// What becomes of deliveries' failing, by key in schema.Failed and number.
	failed map[string]map[uint64]bool

	wroteIDs bool // a run of them
}

// Flush writes what earlier steps have left to be written.
func (s *Step) Flush() error {
	for _, write := range []func() error{
		s.writeSegment, s.moveDividers, s.writeFresh, s.writeSkipped, s.writeAttempts, s.writeFailed, s.writeIDs,
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Step) writeFresh() error   { return s.fresh.write(s) }
func (s *Step) writeSkipped() error { return s.skipped.write(s) }

// LastPublished returns when the last event was published.
func (s *Step) LastPublished() time.Time { return s.writer.lastPublished }

// putNumber stores a number in the bucket meta, unless it is the one from before.
func (s *Step) putNumber(key []byte, before, number uint64) error {
	if number == before {
		return nil
	}
	return s.Put(schema.Meta, key, record.NumberKey(number))
}

// A View reads the log in one transaction.
type View struct {
	log      *Log
	tx       *bbolt.Tx
	segments *Segments
	latest   latest
}

// View returns a View of a transaction.
func (l *Log) View(tx *bbolt.Tx) *View { return &View{log: l, tx: tx, segments: NewSegments(tx)} }

// View returns a View of the flushed changes.
func (s *Step) View() *View { return s.log.View(s.tx) }

// hasWebhook reports whether there is a webhook of that ID.
func (l *Log) hasWebhook(tx *bbolt.Tx, id []byte) bool {
	return tx.Bucket(l.options.WebhookIDs).Get(id) != nil
}
