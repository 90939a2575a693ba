package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test sets the clock ahead. For a day, purges must not end any pending delivery; if the clock
// is corrected within that day, they must never end one.
func TestClock_SetAhead_PurgeEndsNothingForADay(t *testing.T) {
	const day, ahead = 24 * time.Hour, 31 * 24 * time.Hour
	for name, right := range map[string]bool{"for a day": false, "for an hour": true} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				var system testclock.Clock
				s := openTemp(t, systemClock(&system))
				defer func() { _ = s.Close() }()
				if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				publishMany(t, s, 1)
				state := func(ahead time.Duration) driver.DeliveryState {
					system.RunAhead(ahead)
					before := time.Now().Add(ahead - 30*day)
					if _, err := s.Purge(t.Context(), driver.Purge{Payloads: before, Limit: 100}); err != nil {
						t.Fatal(err)
					}
					list, err := s.EventDeliveries(t.Context(), "acct", testEvent(0, 0).ID)
					if err != nil || len(list) != 1 {
						t.Fatal(list, err)
					}
					return list[0].State
				}
				for range 24 {
					if got := state(ahead); got != driver.Pending {
						t.Fatalf("it is %s soon after the clock was set", got)
					}
					time.Sleep(time.Hour)
					if right {
						break
					}
				}
				want := driver.Dead
				if right {
					ahead, want := time.Duration(0), driver.Pending
					_ = state(ahead)
					time.Sleep(2 * day)
					if got := state(ahead); got != want {
						t.Errorf("it is %s with the clock set right, want %s", got, want)
					}
					return
				}
				if got := state(ahead); got != want {
					t.Errorf("it is %s a day after the clock was set, want %s", got, want)
				}
			})
		})
	}
}

// The test postpones deliveries while the clock is wrong. The deliveries must become due after the
// intended delay, even if the clock is corrected or the store is restarted meanwhile. The due time
// in lists must follow the current system clock.
func TestDue_ClockCorrected_KeepsIntendedTime(t *testing.T) {
	const retry = time.Hour
	for name, ahead := range map[string]time.Duration{"ahead": 365 * 24 * time.Hour, "back": -365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			testbubble.Run(t, func(t *testing.T) {
				var system testclock.Clock
				s := mustOpen(t, path, systemClock(&system))
				if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				publishMany(t, s, 1)
				var ref driver.DeliveryRef
				putOff := func() {
					tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1)
					if err != nil || len(tasks) != 1 {
						t.Fatal(len(tasks), err)
					}
					ref = tasks[0].Ref
					_, err = storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{{
						Task: tasks[0], Effect: driver.Retry, RetryAfter: retry, Attempt: driver.Attempt{Number: tasks[0].Attempt},
					}})
					if err != nil {
						t.Fatal(err)
					}
				}
				wantDue := func(in time.Duration) {
					t.Helper()
					loaded, err := s.Load(t.Context(), []driver.DeliveryRef{ref})
					if err != nil || time.Until(loaded[0].Due).Round(time.Second) != in {
						t.Errorf("Load = %+v, %v; want it due in %v", loaded, err, in)
					}
					list, err := s.EventDeliveries(t.Context(), "acct", testEvent(0, 0).ID)
					if err != nil || len(list) != 1 {
						t.Fatal(list, err)
					}
					if shown := s.clock.Mark().Wall; list[0].NextAttemptAt.Sub(shown).Round(time.Second) != in {
						t.Errorf("the next attempt is shown to be at %v, and it is %v; want it in %v", list[0].NextAttemptAt, shown, in)
					}
				}
				again := func() {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					system.RunAhead(0)
					s = mustOpen(t, path, systemClock(&system))
				}
				system.RunAhead(ahead)
				putOff()
				wantDue(retry)
				time.Sleep(10 * time.Minute)
				system.RunAhead(0)
				wantDue(50 * time.Minute)
				if _, err := s.Purge(t.Context(), driver.Purge{Limit: 1}); err != nil { // marks the clock
					t.Fatal(err)
				}
				again()
				wantDue(50 * time.Minute)
				time.Sleep(50 * time.Minute)
				putOff()
				again()
				wantDue(retry)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The test publishes a few old events, and then more events, some of them while the clock is weeks
// behind. A purge must end only the old events.
func TestPurge_ClockWasBehind_KeepsEarlierEvents(t *testing.T) {
	const day, old, part = 24 * time.Hour, 5, 100
	testbubble.Run(t, func(t *testing.T) {
		var system testclock.Clock
		s := openTemp(t, systemClock(&system))
		defer func() { _ = s.Close() }()
		if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		right := time.Now()
		for i := range old + 3*part {
			system.RunAhead(0)
			if i < old || i >= old+part && i < old+2*part {
				system.RunAhead(-40 * day)
			}
			if _, err := s.Enqueue(t.Context(), testEvent(i, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(day + time.Hour) // until the corrected clock is trusted
		if _, err := s.Purge(t.Context(), driver.Purge{Payloads: right.Add(-30 * day), Limit: 1000}); err != nil {
			t.Fatal(err)
		}
		if b, err := storetest.WorkerOf(s).Backlog(t.Context(), ""); err != nil || b.Pending != 3*part {
			t.Errorf("%d deliveries are pending, %v; want %d: all but those that are old", b.Pending, err, 3*part)
		}
	})
}

// The test stores events and audit entries while the clock is a year ahead, for less than a day.
// Events and entries stored later must still be purged on time, together with the wrongly dated
// ones. Events and entries stored earlier must not be purged too early.
func TestRetention_EventsFromClockAYearAhead_ArePurgedOnTime(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for name, restarts := range map[string]bool{"in one process": false, "in processes one after the other": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			testbubble.Run(t, func(t *testing.T) {
				var system testclock.Clock
				s := mustOpen(t, path, systemClock(&system))
				stored := 0
				store := func() {
					t.Helper()
					if _, err := s.Enqueue(t.Context(), testEvent(stored, 10)); err != nil {
						t.Fatal(err)
					}
					n := audit.Entry{ID: fmt.Sprintf("aud_%02d", stored), Account: "acct", Action: audit.KeyChanged, At: time.Now()}
					if _, err := s.AddAuditEntries(t.Context(), []audit.Entry{n}); err != nil {
						t.Fatal(err)
					}
					if stored++; restarts {
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
						system.RunAhead(0)
						s = mustOpen(t, path, systemClock(&system))
					}
				}
				kept := func() (first int) {
					t.Helper()
					before := time.Now().Add(-30 * day)
					for more := true; more; {
						var err error
						if more, err = s.Purge(t.Context(), driver.Purge{Payloads: before, Attempts: before, EventIDs: before, AuditEntries: before, Limit: 100}); err != nil {
							t.Fatal(err)
						}
					}
					events := 0
					for i := range stored {
						if _, _, err := s.EventByID(t.Context(), "acct", testEvent(i, 0).ID); err == nil {
							events++
						}
					}
					page, err := s.ListAuditEntries(t.Context(), "acct", audit.Query{Limit: 100})
					if err != nil || len(page.Entries) != events {
						t.Errorf("there are %d audit entries, %v, and %d events", len(page.Entries), err, events)
					}
					return stored - events
				}
				store()
				system.RunAhead(year)
				for range 3 { // a restart happens with the correct clock
					store()
					system.RunAhead(year)
				}
				system.RunAhead(0)
				for range 3 {
					time.Sleep(day)
					store()
				}
				if got := kept(); got != 0 {
					t.Errorf("soon after it %d are purged, want 0", got)
				}
				time.Sleep(27*day + time.Hour) // only the first event is known to have expired
				if got := kept(); got != 1 {
					t.Errorf("27 days later %d are purged, want 1", got)
				}
				time.Sleep(day) // the next event has expired, too
				if got := kept(); got != 5 {
					t.Errorf("28 days later %d are purged, want 5", got)
				}
				store()
				time.Sleep(10 * day)
				if got := kept(); got != 7 {
					t.Errorf("38 days later %d are purged, want 7", got)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
			report, err := Verify(path)
			if err != nil || report.Err() != nil {
				t.Error(err, report.Err())
			}
		})
	}
}

// If a step notices that the clock was corrected, and then fails, the next step notices it again.
func TestPublish_AfterFailedTransaction_UsesCorrectedClock(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	testbubble.Run(t, func(t *testing.T) {
		var system testclock.Clock
		var disk boltfault.Disk
		s := openTemp(t, systemClock(&system), disk.Option)
		publish := func(i int) error { _, err := s.Enqueue(t.Context(), testEvent(i, 10)); return err }
		system.RunAhead(year)
		if err := publish(0); err != nil {
			t.Fatal(err)
		}
		system.RunAhead(0)
		disk.Around(func(func() error) error { return errFull })
		if err := publish(1); err == nil {
			t.Fatal("the commit did not fail")
		}
		disk.Around(nil)
		if err := publish(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * day)
		before := time.Now().Add(-30 * day)
		if _, err := s.Purge(t.Context(), driver.Purge{Payloads: before, Attempts: before, EventIDs: before, Limit: 100}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, _, err := s.EventByID(t.Context(), "acct", testEvent(i, 0).ID); !errors.Is(err, apierr.ErrNotFound) {
				t.Errorf("event %d: %v, want %v", i, err, apierr.ErrNotFound)
			}
		}
	})
}
