package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test lists the failed deliveries of a webhook that are spread thinly over many index rows. It
// includes skipped deliveries, both in indexed runs and in runs that are not indexed yet.
func TestFailed_ManyIndexRows_ListsAll(t *testing.T) {
	t.Parallel()
	const lanes, rounds = 20, 28
	s := openTemp(t)
	for i := range lanes {
		if err := s.CreateWebhook(t.Context(), testWebhook(i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	active := func(on bool) {
		_, err := s.UpdateWebhook(t.Context(), "acct", "wh1", func(w *driver.Webhook, _ *audit.Entry) error { w.Active = on; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	seen, settled := map[driver.DeliveryState]int{}, 0
	for round := range rounds {
		if round%8 == 3 {
			active(false)
		}
		var steps []func(*batch) error
		for i := range 100 {
			e := newTestEvent(s, testEvent(100*round+i, 10))
			steps = append(steps, func(b *batch) error { _, _, err := s.enqueue(b, e, ""); return err })
		}
		if err := errors.Join(together(t, s, steps...)...); err != nil {
			t.Fatal(err)
		}
		if round%8 == 3 {
			active(true)
		}
		for {
			tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 500)
			if err != nil {
				t.Fatal(err)
			}
			if len(tasks) == 0 {
				break
			}
			var ends []storetest.Settlement
			for _, task := range tasks {
				outcome := driver.Deliver
				switch random.IntN(400) {
				case 0:
					outcome = driver.GiveUp
				case 1, 2:
					outcome = driver.Retry
				}
				switch {
				case task.Webhook.ID == "wh0" && round == 0:
					outcome = driver.GiveUp // so it is in the first row only
				case task.Webhook.ID == "wh0", task.Webhook.ID != "wh1" && round%8 != 0:
					outcome = driver.Deliver
				}
				end := settlementOf(task, outcome)
				if end.RetryAfter = 0; outcome == driver.Retry && round%2 == 0 {
					end.RetryAfter = time.Hour
				}
				if outcome != driver.Deliver {
					end.Attempt.Class = driver.ClassStatus
				}
				ends = append(ends, end)
			}
			if _, err := storetest.WorkerOf(s).Settle(t.Context(), ends); err != nil {
				t.Fatal(err)
			}
			settled += len(ends)
		}
		if round == rounds/2 { // indexes the deliveries skipped so far
			purge := driver.Purge{Limit: 1000}
			for more := true; more; {
				var err error
				if more, err = s.Purge(t.Context(), purge); err != nil {
					t.Fatal(err)
				}
			}
		}
		if round%13 != 12 {
			continue
		}
		for _, webhook := range []string{"wh1", "wh2", "wh0"} {
			all := s.list(t, webhook, driver.DeliveryQuery{Limit: 1000})
			all = slices.DeleteFunc(all, func(d driver.Delivery) bool { return !d.Failed() })
			for _, limit := range []int{3, 1000} {
				got := s.list(t, webhook, driver.DeliveryQuery{Failed: true, Limit: limit})
				if want := eventsOf(all); !slices.Equal(eventsOf(got), want) {
					t.Fatalf("%s in round %d: %d events failed, want %d", webhook, round, len(got), len(want))
				}
			}
			for _, d := range all {
				seen[d.State]++
			}
			for i, d := range all {
				if i%3 == 0 && d.State != driver.Pending {
					if err := s.Redeliver(t.Context(), "acct", webhook, d.EventID, audit.Entry{}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if settled < record.MaxFailed*3/2 || seen[driver.Dead] == 0 || seen[driver.Skipped] == 0 || seen[driver.Pending] == 0 {
		t.Errorf("%d were settled, %v failed: the test tests too little", settled, seen)
	}
}

// When a failed delivery succeeds later, its row is removed from the index.
func TestFailed_DeliveredLater_LeavesNoRow(t *testing.T) {
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), testEvent(1, 10)); err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		outcome driver.Effect
		rows    int
	}{{driver.Retry, 1}, {driver.GiveUp, 1}, {driver.Deliver, 0}} {
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1)
		if err != nil || len(tasks) != 1 {
			t.Fatal(tasks, err)
		}
		settlement := settlementOf(tasks[0], end.outcome)
		settlement.RetryAfter, settlement.Attempt.Class = 0, driver.ClassStatus
		if _, err := storetest.WorkerOf(s).Settle(t.Context(), []storetest.Settlement{settlement}); err != nil {
			t.Fatal(err)
		}
		if end.outcome == driver.GiveUp {
			if err := s.Redeliver(t.Context(), "acct", "wh1", testEvent(1, 10).ID, audit.Entry{}); err != nil {
				t.Fatal(err)
			}
		}
		err = s.db.View(func(tx *bbolt.Tx) error {
			if rows := tx.Bucket(schema.Failed).Stats().KeyN; rows != end.rows {
				t.Errorf("%d rows after outcome %v, want %d", rows, end.outcome, end.rows)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func (s *engine) list(t *testing.T, webhook string, query driver.DeliveryQuery) (all []driver.Delivery) {
	for {
		page, err := s.ListDeliveries(t.Context(), "acct", webhook, query)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Deliveries...)
		if query.After = page.Next; query.After == "" {
			return all
		}
		if query.Failed && len(page.Deliveries) < query.Limit {
			t.Fatalf("a page of %d, not the last, has %d", query.Limit, len(page.Deliveries))
		}
	}
}

func eventsOf(list []driver.Delivery) (ids []string) {
	for _, d := range list {
		ids = append(ids, fmt.Sprint(d.EventID, " ", d.State))
	}
	return ids
}
