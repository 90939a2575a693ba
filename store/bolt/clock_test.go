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

// TestClockIsSetBetweenRuns closes a file at one time and opens it at another, a day
// earlier or later than its last use: bubbles all begin at the same time. Retries
// that were due in five minutes come within those, each once.
func TestClockIsSetBetweenRuns(t *testing.T) {
	const day, retry, events = 24 * time.Hour, 5 * time.Minute, 20
	for name, clock := range map[string]struct{ first, second time.Duration }{
		"back":  {first: day},
		"ahead": {second: day},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			var last time.Time // published
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

// at opens the file in a bubble of its own, the given time after bubbles begin.
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

// settleAll claims what is due, which must be that many deliveries, and settles it.
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

// TestClockWasAYearAhead publishes one event under a clock that is a year ahead, between
// runs under the right one: what waits to be retried is due early once at most.
func TestClockWasAYearAhead(t *testing.T) {
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

// TestLongAbsence: how long a file was not open is told by the clock alone, which may have
// been set. For a day nothing that is pending ends, but what is due is delivered.
func TestLongAbsence(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		run, absent time.Duration
		want        driver.DeliveryState // at once
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

// purgeOld purges what is older than that by the system's clock.
func purgeOld(t *testing.T, s *bolt.Store, age time.Duration) {
	t.Helper()
	before := time.Now().Add(-age)
	if _, err := s.Purge(t.Context(), driver.Purge{Payloads: before, Attempts: before.Add(-age), EventIDs: before.Add(-age), Limit: 100}); err != nil {
		t.Fatal(err)
	}
}

// wantState purges what is older than 30 days, and checks the state of the first event.
func wantState(t *testing.T, s *bolt.Store, want driver.DeliveryState) {
	t.Helper()
	purgeOld(t, s, 30*24*time.Hour)
	list, err := s.EventDeliveries(t.Context(), "acct", eventID(0))
	if err != nil || len(list) != 1 || list[0].State != want {
		t.Fatalf("the delivery is %+v, %v; want it %s", list, err, want)
	}
}
