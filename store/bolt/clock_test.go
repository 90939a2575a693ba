package bolt_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test closes a file and opens it again with a clock that is a day earlier or later than when
// it was last used. (All bubbles begin at the same time.) Retries that were due in five minutes
// must be made within five minutes, and only once each.
func TestClock_SetBetweenRuns_RetriesComeOnTime(t *testing.T) {
	const day, retry, events = 24 * time.Hour, 5 * time.Minute, 20
	for name, clock := range map[string]struct{ first, second time.Duration }{
		"back":  {first: day},
		"ahead": {second: day},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			var last time.Time // time of the last event
			at(t, clock.first, path, func(t *testing.T, s *bolt.Store) {
				createClockWebhook(t, s)
				for i := range events {
					enqueue(t, s, i)
				}
				settleAll(t, s, events, driver.Retry, retry)
				last = time.Now()
			})
			at(t, clock.second, path, func(t *testing.T, s *bolt.Store) {
				time.Sleep(retry)
				settleAll(t, s, events, driver.Deliver, 0)
				enqueue(t, s, events)
				settleAll(t, s, 1, driver.Deliver, 0)
				page, err := s.ListDeliveries(t.Context(), "acct", "wh", driver.DeliveryQuery{Limit: 100, From: last.Truncate(time.Millisecond)})
				if err != nil || len(page.Deliveries) == 0 || page.Deliveries[0].EventID != eventID(events) {
					t.Errorf("the new event is not listed as the newest: %+v, %v", page, err)
				}
			})
		})
	}
}

// at starts a new bubble, waits for the duration after, and opens the file.
func at(t *testing.T, after time.Duration, path string, use func(*testing.T, *bolt.Store)) {
	t.Helper()
	testbubble.Run(t, func(t *testing.T) {
		time.Sleep(after)
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		use(t, s)
	})
}

func eventID(i int) string { return "evt_" + string(rune('a'+i)) }

func enqueue(t *testing.T, s *bolt.Store, i int) {
	t.Helper()
	_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: eventID(i), Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
}

// settleAll claims the due deliveries and settles them. It fails the test unless their number is
// want.
func settleAll(t *testing.T, s *bolt.Store, want int, outcome driver.Effect, after time.Duration) {
	t.Helper()
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1000)
	if err != nil || len(tasks) != want {
		t.Fatalf("claimed %d deliveries, %v; want %d", len(tasks), err, want)
	}
	settlements := make([]storetest.Settlement, len(tasks))
	for i, task := range tasks {
		settlements[i] = storetest.Settlement{
			Task: task, Effect: outcome, RetryAfter: after,
			Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Status: 500},
		}
	}
	if stale, err := storetest.WorkerOf(s).Settle(t.Context(), settlements); err != nil || len(stale) > 0 {
		t.Fatalf("Settle = %v, %v", stale, err)
	}
}

// The test runs the store with the right clock, then publishes one event with a clock that is a
// year ahead, and then runs with the right clock again. Scheduled retries may be made early, but
// only once.
func TestClock_WasAYearAhead_RetriesAreSentOnce(t *testing.T) {
	const events, hour = 20, time.Hour
	path := filepath.Join(t.TempDir(), "storage.db")
	at(t, 0, path, func(t *testing.T, s *bolt.Store) {
		createClockWebhook(t, s)
		for i := range events {
			enqueue(t, s, i)
		}
		settleAll(t, s, events, driver.Retry, 24*hour)
	})
	at(t, 365*24*hour, path, func(t *testing.T, s *bolt.Store) {
		enqueue(t, s, events)
		if _, err := s.Purge(t.Context(), driver.Purge{Limit: 1}); err != nil {
			t.Fatal(err)
		}
	})
	at(t, 1*hour, path, func(t *testing.T, s *bolt.Store) { settleAll(t, s, events+1, driver.Retry, 24*hour) })
	for after := 2 * hour; after < 25*hour; after += hour {
		at(t, after, path, func(t *testing.T, s *bolt.Store) { settleAll(t, s, 0, driver.Retry, 0) })
	}
	at(t, 25*hour, path, func(t *testing.T, s *bolt.Store) { settleAll(t, s, events+1, driver.Deliver, 0) })
}

// The test opens a file that was closed for a long time. Only the system clock shows for how long,
// and the clock may be wrong. So for a day, pending deliveries must not expire, but due deliveries
// must be delivered.
func TestOpen_AfterLongAbsence_EndsNothingForADay(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		run, absent time.Duration
		want        driver.DeliveryState // state right after opening
	}{
		"never run before":        {0, 31 * day, driver.Pending},
		"after it ran for long":   {29 * day, 2 * day, driver.Pending},
		"a restart does not wait": {31 * day, 10 * time.Minute, driver.Dead},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			at(t, 0, path, func(t *testing.T, s *bolt.Store) {
				createClockWebhook(t, s)
				enqueue(t, s, 0)
				for range int(test.run / time.Hour) {
					time.Sleep(time.Hour)
					purgeOld(t, s, 100*day)
				}
			})
			at(t, test.run+test.absent, path, func(t *testing.T, s *bolt.Store) {
				wantState(t, s, test.want)
				if test.want == driver.Dead {
					return
				}
				settleAll(t, s, 1, driver.Retry, time.Hour)
				time.Sleep(day - time.Second)
				wantState(t, s, driver.Pending)
				time.Sleep(time.Second)
				wantState(t, s, driver.Dead)
			})
		})
	}
}

func createClockWebhook(t *testing.T, s *bolt.Store) {
	t.Helper()
	err := s.CreateWebhook(t.Context(), driver.Webhook{
		ID: "wh", Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow},
	}, driver.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// purgeOld purges events older than age by the system clock.
func purgeOld(t *testing.T, s *bolt.Store, age time.Duration) {
	t.Helper()
	before := time.Now().Add(-age)
	if _, err := s.Purge(t.Context(), driver.Purge{Payloads: before, Attempts: before.Add(-age), EventIDs: before.Add(-age), Limit: 100}); err != nil {
		t.Fatal(err)
	}
}

// wantState purges events older than 30 days, and checks the state of the first event's delivery.
func wantState(t *testing.T, s *bolt.Store, want driver.DeliveryState) {
	t.Helper()
	purgeOld(t, s, 30*24*time.Hour)
	list, err := s.EventDeliveries(t.Context(), "acct", eventID(0))
	if err != nil || len(list) != 1 || list[0].State != want {
		t.Fatalf("the delivery is %+v, %v; want it %s", list, err, want)
	}
}
