package eventlog_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/driver"
)

// A logFile is the event log of a file that no Store has open.
type logFile struct {
	*eventlog.Log
	writer *eventlog.Writer
	db     *bbolt.DB
	steps  *groupcommit.Writer[*eventlog.Step]
	disk   boltfault.Disk
}

// openLog opens the log of a file. If there is no file, it creates one as a Store does.
func openLog(t *testing.T, path string) *logFile {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		s, err := bolt.Open(path)
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &logFile{db: db}
	l.Log, l.writer, err = eventlog.Open(db, eventlog.Options{
		Clock: new(clock.Clock), WebhookIDs: []byte("webhook_ids"), Erasing: func(string) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.steps = groupcommit.New(db, groupcommit.Config[*eventlog.Step]{
		Begin:  func(tx *groupcommit.Tx) *eventlog.Step { return l.writer.Begin(tx, func() error { return nil }) },
		Commit: l.disk.Commit,
		Ended:  l.writer.Ended,
	})
	t.Cleanup(func() { _ = l.close() })
	return l
}

func (l *logFile) close() error {
	l.steps.Close()
	return l.db.Close()
}

// run runs steps in one transaction.
func (l *logFile) run(t *testing.T, steps ...func(*eventlog.Step) error) {
	t.Helper()
	if err := errors.Join(boltfault.Together(t.Context(), l.steps.Run, steps...)...); err != nil {
		t.Fatal(err)
	}
}

// event returns an event of an account that has no webhooks.
func (l *logFile) event(account, id string) *eventlog.Event {
	return l.NewEvent(&driver.EncodedEvent{ID: id, Account: account, Type: alerts.TypeBalanceLow, Timestamp: time.Now()})
}

// publish publishes an event unless it is known, and reports whether it was new.
func publish(s *eventlog.Step, e *eventlog.Event) (isNew bool, err error) {
	if _, err := s.Known(e); !errors.Is(err, apierr.ErrNotFound) {
		return false, err
	}
	_, err = s.Publish(e, nil, nil)
	return true, err
}

// knows reports whether a reader finds an event by its ID.
func (l *logFile) knows(t *testing.T, account, id string) (known bool) {
	t.Helper()
	found := l.Find(account, id)
	err := l.db.View(func(tx *bbolt.Tx) error {
		_, err := l.View(tx).Event(found)
		return err
	})
	if err != nil && !errors.Is(err, apierr.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// purge removes events published before the given time.
func (l *logFile) purge(t *testing.T, before time.Time) {
	t.Helper()
	for more := true; more; {
		l.run(t, func(s *eventlog.Step) error {
			if err := s.Flush(); err != nil {
				return err
			}
			left := 100
			_, err := s.Purge(&driver.Purge{Payloads: before, Attempts: before, EventIDs: before}, &left)
			more = left <= 0
			return err
		})
	}
}

// erase removes the events of an account.
func (l *logFile) erase(t *testing.T, account string) {
	t.Helper()
	for next, more := uint64(0), true; more; {
		l.run(t, func(s *eventlog.Step) (err error) {
			if err = s.Flush(); err == nil {
				next, more, _, err = s.Erase(account, next, 1000)
			}
			return err
		})
	}
}

// verify checks the file, which must be closed.
func verify(t *testing.T, path string) {
	t.Helper()
	if report, err := boltops.Verify(path, nil); err != nil || len(report.Problems) > 0 {
		t.Errorf("Verify = %v, %v, want a sound file", report.Problems, err)
	}
}
