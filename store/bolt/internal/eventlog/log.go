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

// Options connect the log with the rest of the store.
type Options struct {
	Clock      *clock.Clock
	Cursors    cursor.Key                // encodes positions in lists
	WebhookIDs []byte                    // bucket with the IDs of all webhooks as keys
	Erasing    func(account string) bool // reports whether to hide an account from readers
}

// A Log is the event log of a file.
type Log struct {
	options Options
	ids     idIndex
}

// A Writer is the part of a log's state that only steps of the file's writer may use. Steps access
// it through a [Step].
type Writer struct {
	log  *Log
	ids  idWriter
	page int // page size of the file in bytes

	segment  record.SegmentBuilder // reused by the next batch
	attempts record.Packer

	lastPublished      time.Time // publication time of the last event
	committedPublished time.Time // lastPublished as of the last commit
	divided            uint64    // number of the segment before the dividers; 0 if there are none
}

// Open returns the log of a file. It reads the event IDs in the file.
func Open(db *bbolt.DB, o Options) (*Log, *Writer, error) {
	l := &Log{options: o}
	w := &Writer{log: l, page: db.Info().PageSize}
	if err := w.loadNewest(db); err != nil {
		return nil, nil, err
	}
	return l, w, w.loadIDs(db)
}

// Begin returns the Step of a transaction. The Step calls markClock before it stores a due time,
// because due times are relative to the file's clock.
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

// LastPublished returns the publication time of the newest event, or the zero time if it is
// unknown or there is no event.
func (w *Writer) LastPublished() time.Time { return w.lastPublished }

// A Step changes the log, in a transaction shared by the steps of a group commit. Some rows change
// in many steps and are written once, by Flush. A step must call Flush before it reads such rows.
type Step struct {
	*groupcommit.Tx
	tx        *bbolt.Tx // for reading
	log       *Log
	writer    *Writer
	markClock func() error

	late           []row  // attempts that are not packed
	published      int    // bytes that the batch has written to schema.Events since it moved the dividers
	divided        uint64 // like Writer.divided; 0 if the batch has not moved them
	fresh, skipped bitmaps

	// Whether a delivery failed, by key in schema.Failed and by the delivery's number.
	failed map[string]map[uint64]bool

	wroteIDs bool // whether the batch has written a run of IDs
}

// Flush writes the rows that earlier steps changed in memory.
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

// LastPublished returns the publication time of the last event.
func (s *Step) LastPublished() time.Time { return s.writer.lastPublished }

// putNumber stores number in the bucket meta if it differs from before, the number stored there.
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

// View returns a View of the transaction. It does not see changes that are not flushed.
func (s *Step) View() *View { return s.log.View(s.tx) }

// hasWebhook reports whether the webhook exists.
func (l *Log) hasWebhook(tx *bbolt.Tx, id []byte) bool {
	return tx.Bucket(l.options.WebhookIDs).Get(id) != nil
}
