package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

func dueAlerts(run runner) {
	due := func(t *tester, account string, series string) (due bool) {
		t.Helper()
		t.updateAlert(account, series, func(step *driver.AlertStep) error {
			due = step.Due
			return nil
		})
		return due
	}

	run("creating, updating or deleting a webhook makes the alert due, and a step ends that", func(t *tester) {
		t.updateAlert("acct", "series", keepState("state"))
		t.wantDue()
		for what, do := range map[string]func(){
			"created": func() { t.createWebhooks(newWebhook("acct", "a")) },
			"updated": func() { t.updateWebhook("acct", "a", func(*driver.Webhook) {}) },
			"deleted": func() { t.must(t.store.DeleteWebhook(t.Context(), "acct", "a", nil, audit.Entry{})) },
		} {
			if what != "created" {
				t.createWebhooks(newWebhook("acct", "a"))
				wantSame(t, "Due", due(t, "acct", "series"), true)
			}
			do()
			t.wantDue("acct")
			wantSame(t, "Due after it was "+what, due(t, "acct", "series"), true)
			t.wantDue()
			wantSame(t, "Due then", due(t, "acct", "series"), false)
			if what != "deleted" {
				t.must(t.store.DeleteWebhook(t.Context(), "acct", "a", nil, audit.Entry{}))
				due(t, "acct", "series")
			}
		}
		wantSame(t, "State", t.alert("acct", "series"), "state")
	})

	run("also with a deferred state", func(t *tester) {
		deferrable := func(state string) func(*driver.AlertStep) error {
			return func(step *driver.AlertStep) error {
				step.State, step.Deferrable = []byte(state), true
				return nil
			}
		}
		t.updateAlert("acct", "series", deferrable("deferred"))
		t.wantDue()
		t.createWebhooks(newWebhook("acct", "a"))
		t.wantDue("acct")
		wantSame(t, "Due", due(t, "acct", "series"), true)
		t.updateAlert("acct", "series", deferrable("deferred again"))
		t.updateWebhook("acct", "a", func(*driver.Webhook) {})
		wantSame(t, "Due", due(t, "acct", "series"), true)
		wantSame(t, "State", t.alert("acct", "series"), "deferred again")
	})

	run("all series of the account that have a state, and no others", func(t *tester) {
		for _, account := range []string{"acct", "other", "gone"} {
			t.updateAlert(account, "series", keepState("state"))
			t.updateAlert(account, "another series", keepState("state"))
		}
		t.updateAlert("gone", "series", keepState(""))
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("gone", "b"))
		t.wantDue("acct", "acct", "gone")
		for series, want := range map[driver.AlertSeries]bool{
			{Account: "acct", Name: "series"}: true, {Account: "acct", Name: "another series"}: true, {Account: "acct", Name: "a third"}: false,
			{Account: "other", Name: "series"}: false, {Account: "other", Name: "another series"}: false,
			{Account: "gone", Name: "series"}: false, {Account: "gone", Name: "another series"}: true,
		} {
			wantSame(t, fmt.Sprintf("Due of %v", series), due(t, series.Account, series.Name), want)
		}
		t.wantDue()
	})

	run("a failed step leaves the alert due", func(t *tester) {
		t.updateAlert("acct", "series", keepState("state"))
		t.createWebhooks(newWebhook("acct", "a"))
		no := errors.New("no")
		_, err := t.store.UpdateAlert(t.Context(), "acct", "series", func(*driver.AlertStep) error { return no })
		t.wantError("UpdateAlert", err, no)
		t.wantDue("acct")
		wantSame(t, "Due", due(t, "acct", "series"), true)
	})

	run("DueAlerts returns at most limit series, and all of them in the end", func(t *tester) {
		for i := range 7 {
			account := numbered("acct", i)
			t.updateAlert(account, "series", keepState("state"))
			t.createWebhooks(newWebhook(account, account))
		}
		for want := 7; want > 0; want -= 3 {
			list, err := t.store.DueAlerts(t.Context(), 3)
			t.must(err)
			wantSame(t, "number of series", len(list), min(want, 3))
			for _, series := range list {
				wantSame(t, "Due", due(t, series.Account, series.Name), true)
			}
		}
		t.wantDue()
	})

	run("a settlement that disables a webhook does not make the alert due", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"))
		t.updateAlert("acct", "series", keepState("state"))
		t.enqueue(newEvent("acct", "event"), 1)
		end := settlement(t.claimAll(1)[0], driver.GiveUp)
		end.Deactivate = driver.OffGone
		t.settle(end)
		t.wantDue()
	})
}

// alertRaces tests concurrent calls to UpdateAlert.
func alertRaces(run runner) {
	count := func(step *driver.AlertStep) (n int) {
		n, _ = strconv.Atoi(string(step.State))
		return n
	}

	run("no step is lost, deferred or not, and each event belongs to one state", func(t *tester) {
		const goroutines, each = 8, 50
		t.createWebhooks(newWebhook("acct", "a"))
		inParallel(goroutines, func(i int) {
			for j := range each {
				_, err := t.store.UpdateAlert(t.Context(), "acct", "series", func(step *driver.AlertStep) error {
					n := count(step) + 1
					step.State = []byte(strconv.Itoa(n))
					step.Deferrable = (i+j)%3 > 0
					if n%10 == 0 {
						step.Deferrable, step.Events = false, []driver.AlertEvent{{EncodedEvent: newEvent("acct", strconv.Itoa(n))}}
					}
					return nil
				})
				t.wantError("UpdateAlert", err, nil)
			}
		})
		wantSame(t, "State", t.alert("acct", "series"), strconv.Itoa(goroutines*each))
		seen := map[string]bool{}
		for _, task := range t.claimAll(goroutines * each / 10) {
			seen[task.Event.ID] = true
		}
		wantSame(t, "number of events", len(seen), goroutines*each/10)
	})

	run("a webhook created during a step is visible to it or makes the alert due", func(t *tester) {
		for round := range 50 {
			account := numbered("acct", round)
			if round%2 == 0 {
				t.updateAlert(account, "series", keepState("state"))
			}
			saw := false
			inParallel(2, func(i int) {
				if i == 0 {
					t.wantError("CreateWebhook", t.store.CreateWebhook(t.Context(), newWebhook(account, account), driver.CreateOptions{}), nil)
					return
				}
				_, err := t.store.UpdateAlert(t.Context(), account, "series", func(step *driver.AlertStep) error {
					saw, step.State = len(step.Webhooks()) > 0, []byte("new")
					return nil
				})
				t.wantError("UpdateAlert", err, nil)
			})
			list, err := t.store.DueAlerts(t.Context(), 99)
			t.must(err)
			if saw == slices.Contains(list, driver.AlertSeries{Account: account, Name: "series"}) {
				t.Errorf("step saw the webhook: %v, alert due: %v; want exactly one", saw, !saw)
			}
		}
	})

	run("steps of different alerts do not block each other", func(t *tester) {
		inParallel(8, func(i int) {
			for j := range 50 {
				account := numbered("acct", (i+j)%4)
				_, err := t.store.UpdateAlert(t.Context(), account, "series 1", func(step *driver.AlertStep) error {
					step.State, step.Deferrable = []byte(strconv.Itoa(count(step)+1)), j%2 == 0
					return nil
				})
				t.wantError("UpdateAlert", err, nil)
			}
		})
		sum := 0
		for i := range 4 {
			n, _ := strconv.Atoi(t.alert(numbered("acct", i), "series 1"))
			sum += n
		}
		wantSame(t, "steps", sum, 8*50)
	})
}
