package bolt

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// TestEventsAreWrittenOnce checks that a commit writes hardly more pages than its events need, even
// after earlier commits of the same size.
func TestEventsAreWrittenOnce(t *testing.T) {
	for _, c := range []struct{ events, body int }{{64, 256}, {256, 256}, {64, 2048}, {1, 20_000}} {
		t.Run(fmt.Sprint(c.events, " events of ", c.body), func(t *testing.T) {
			s := openTemp(t)
			body, written, commits := make([]byte, c.body), int64(0), 10
			for i := range commits {
				var steps []func(*batch) error
				for j := range c.events {
					e := newTestEvent(s, driver.EncodedEvent{
						ID: fmt.Sprint("evt_", i, "_", j), Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: body,
					})
					steps = append(steps, func(b *batch) error {
						if j == 0 {
							b.AfterCommit(func() { stats := b.tx.Stats(); written += stats.GetPageAlloc() })
						}
						_, _, err := s.enqueue(b, e, "")
						return err
					})
				}
				if err := errors.Join(together(t, s, steps...)...); err != nil {
					t.Fatal(err)
				}
			}
			pageSize := int64(s.db.Info().PageSize)
			perEvent := int64(c.body + 100)
			// Allow for the root, the free list, branches, partly filled pages, and one page of
			// dividers.
			if most := int64(commits) * (int64(c.events)*perEvent + 8*pageSize); written > most {
				t.Errorf("%d commits of %d bytes each wrote %d, want at most %d", commits, int64(c.events)*perEvent, written, most)
			}
			if n := dividers(t, s); n != 3 {
				t.Errorf("there are %d dividers", n)
			}
			path := s.db.Path()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if report, err := Verify(path); err != nil || report.Err() != nil {
				t.Error(err, report.Err())
			}
		})
	}
}

func dividers(t *testing.T, s *engine) (n int) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(schema.Events).ForEach(func(k, value []byte) error {
			if eventlog.IsDivider(k, value) {
				n++
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The publication time of the last remaining event stays known, even if later events were erased
// and only their dividers remain.
func TestDividers_LaterEventsErased_KeepLastPublicationTime(t *testing.T) {
	s := openTemp(t)
	publish := func(account string) {
		t.Helper()
		e := newTestEvent(s, driver.EncodedEvent{
			ID: "evt", Account: account, Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: make([]byte, 20_000),
		})
		err := together(t, s, func(b *batch) error {
			_, _, err := s.enqueue(b, e, "")
			return err
		})
		if err := errors.Join(err...); err != nil {
			t.Fatal(err)
		}
	}
	publish("kept")
	want := lastPublished(t, s)
	publish("erased")
	for more := true; more; {
		var err error
		if _, more, err = s.EraseAccount(t.Context(), "erased", 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := dividers(t, s); n == 0 {
		t.Fatal("there are no dividers")
	}
	if got := lastPublished(t, s); !got.Equal(want) {
		t.Errorf("the last event was published at %v, want %v", got, want)
	}
}

func lastPublished(t *testing.T, s *engine) (at time.Time) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		at = eventlog.LastPublished(tx)
		return nil
	})
	if err != nil || at.IsZero() {
		t.Fatal(at, err)
	}
	return at
}
