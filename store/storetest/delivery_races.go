package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// deliveryRaces tests concurrent changes of deliveries.
func deliveryRaces(run runner) {
	run("purged deliveries are not claimed, and claimed deliveries are settled or purged", func(t *tester) {
		const rounds, events = 10, 40
		t.createWebhooks(newWebhook("acct", "webhook"))
		for round := range rounds {
			ids := make([]string, events)
			inParallel(events, func(i int) {
				ids[i] = numbered("event", events*round+i)
				_, err := t.store.Enqueue(t.Context(), newEvent("acct", ids[i]))
				t.wantError("Enqueue", err, nil)
			})
			purge := driver.Purge{Payloads: t.border(), Limit: 10 * events}
			purged := make(chan error, 1)
			go func() {
				more, err := true, error(nil)
				for more && err == nil {
					more, err = t.store.Purge(t.Context(), purge)
				}
				purged <- err
			}()
			claimed := map[string]bool{}
			var settlements []Settlement
			for len(purged) == 0 && len(claimed) < events {
				for _, task := range t.claim(1) {
					claimed[task.Event.ID] = true
					settlements = append(settlements, settlement(task, driver.Deliver))
				}
			}
			t.must(<-purged)
			for _, id := range ids {
				if got := t.delivery("acct", id).State; got != driver.Dead && !(claimed[id] && got == driver.Pending) {
					t.Errorf("%s is %s, claimed: %v", id, got, claimed[id])
				}
			}
			_, err := t.worker().Settle(t.Context(), settlements)
			t.must(err)
			t.claimAll(0)
			b := t.backlog("webhook")
			wantSame(t, "Pending", b.Pending, 0)
		}
	})

	run("all methods at once lose nothing and list nothing twice", func(t *tester) {
		const hooks, events = 4, 60
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			t.createWebhooks(newWebhook("acct", id))
		}
		old := t.border().Add(-time.Hour)
		check := func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		settle := func(tasks []Task, outcome func(i int) driver.Effect) {
			var settlements []Settlement
			for i, task := range tasks {
				if want := newEvent("acct", task.Event.ID); task.Err != nil || string(task.Event.Body) != string(want.Body) {
					t.Errorf("claimed %s with another body, Err = %v", task.Event.ID, task.Err)
				}
				settlements = append(settlements, settlement(task, outcome(i)))
			}
			stale, err := t.worker().Settle(t.Context(), settlements)
			if err != nil || len(stale) > 0 {
				t.Errorf("Settle = %v, %v, want none stale", stale, err)
			}
		}
		inParallel(8, func(worker int) {
			rnd := rand.New(rand.NewPCG(uint64(worker), 0))
			for i := range events {
				id := ids[rnd.IntN(hooks)]
				event := numbered("event", rnd.IntN(max(1, i)))
				switch worker {
				case 0:
					_, err := t.store.Enqueue(t.Context(), newEvent("acct", numbered("event", i)))
					check("Enqueue", err)
				case 1, 2:
					tasks, err := t.worker().Claim(t.Context(), 6)
					check("Claim", err)
					settle(tasks, func(i int) driver.Effect {
						return []driver.Effect{Postpone, driver.Retry, driver.Deliver, driver.GiveUp}[(i+worker)%4]
					})
				case 3:
					if err := t.store.Redeliver(t.Context(), "acct", id, event, audit.Entry{}); err != nil {
						t.wantError("Redeliver", err, apierr.ErrNotFound) // not published yet
					}
				case 4:
					job := newRecovery("acct", id, numbered("recovery", i), driver.Dead, driver.Skipped)
					if err := t.store.CreateRecovery(t.Context(), job, audit.Entry{}); err != nil {
						t.wantError("CreateRecovery", err, driver.ErrRecovering)
					}
					_, err := t.store.AdvanceRecovery(t.Context(), 5)
					check("AdvanceRecovery", err)
				case 5:
					_, err := t.store.Purge(t.Context(), driver.Purge{Payloads: old, Attempts: old, EventIDs: old, Limit: 5})
					check("Purge", err)
				case 6:
					page, err := t.store.ListDeliveries(t.Context(), "acct", id, driver.DeliveryQuery{Limit: 1 + i})
					check("ListDeliveries", err)
					for j := 1; j < len(page.Deliveries); j++ {
						if page.Deliveries[j-1].EventID <= page.Deliveries[j].EventID {
							t.Errorf("%s listed before %s", page.Deliveries[j-1].EventID, page.Deliveries[j].EventID)
						}
					}
					_, err = t.worker().Backlog(t.Context(), id)
					check("Backlog", err)
				case 7:
					_, err := t.store.UpdateWebhook(t.Context(), "acct", id, func(w *driver.Webhook, _ *audit.Entry) error {
						w.Active = i%2 == 1
						return nil
					})
					check("UpdateWebhook", err)
				}
			}
		})

		for _, id := range ids {
			t.setActive("acct", id, true)
		}
		t.advance(50)
		backlog := t.backlog("")
		for end := time.Now().Add(eventTimeout); backlog.Pending > 0 && time.Now().Before(end); {
			settle(t.claim(99), func(int) driver.Effect { return driver.Deliver })
			backlog = t.backlog("")
		}
		wantSame(t, "Backlog", backlog, driver.Backlog{})
		for _, id := range ids {
			list := t.list("acct", id, driver.DeliveryQuery{Limit: 7})
			wantSame(t, "number of deliveries of "+id, len(list), events)
			for i, d := range list {
				wantSame(t, "EventID", d.EventID, numbered("event", events-1-i))
				for j := 1; j < len(d.Attempts); j++ {
					if d.Attempts[j].Number <= d.Attempts[j-1].Number {
						t.Errorf("attempt %d of %s has number %d, after number %d", j, d.EventID, d.Attempts[j].Number, d.Attempts[j-1].Number)
					}
				}
				if made := len(d.Attempts) > 0; made != (d.State == driver.Delivered || d.State == driver.Dead) {
					t.Errorf("%s is %s with %d attempts", d.EventID, d.State, len(d.Attempts))
				}
			}
		}
	})
}
