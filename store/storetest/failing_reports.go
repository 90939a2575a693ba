package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// A failingStep is a step whose commit may fail.
type failingStep struct {
	name    string
	webhook string // the step uses only this webhook, in the account of the same name
	do      func(s store.Store) error
	visible func(s store.Store) (bool, error) // reports whether readers see the step as done
	reports func(Report) bool                 // reports whether a report belongs to the step
}

// failingReports tests that a step whose commit fails is reported if and only if readers can see
// it.
func failingReports(t *testing.T, open func(t *testing.T) FailingStore) {
	t.Helper()
	t.Run("reports of steps whose commits fail", func(t *testing.T) {
		failing := open(t)
		before := &tester{t, failing.Store}
		if _, ok := failing.Store.(driver.Deliveries); !ok {
			closeStore(t, failing.Store)
			t.Skip("store does not implement driver.Deliveries")
		}
		f := before.deliver()
		steps := f.failingSteps(6)
		prepared := len(f.seen())
		failing.Fail()
		inParallel(len(steps), func(i int) { _ = steps[i].do(failing.Store) })

		visible, err := visibleSteps(failing.Store, steps)
		reports := f.seen()[prepared:]
		mended := failing.Mend()
		defer closeStore(t, mended)
		if mended == failing.Store {
			f.mark("after its commits failed")
			reports = f.seen()[prepared:]
			visible, err = visibleSteps(mended, steps)
			f.end()
		} else {
			_ = failing.Close()
		}
		before.must(err)
		done := 0
		for i, step := range steps {
			reported := slices.ContainsFunc(reports, step.reports)
			if reported != visible[i] {
				t.Errorf("%s of %s: visible = %v, reported = %v; reports: %v", step.name, step.webhook, visible[i], reported, reports)
			}
			if reported {
				done++
			}
		}
		t.Logf("%d of %d steps done", done, len(steps))

		after := (&tester{t, mended}).deliver()
		defer after.end()
		kept, err := visibleSteps(mended, steps)
		after.must(err)
		for i, step := range steps {
			if step.name == "Enqueue" && kept[i] {
				after.wait(step.name+" of "+step.webhook, func(reports []Report) bool {
					return slices.ContainsFunc(reports, step.reports)
				})
			}
		}
	})
}

func visibleSteps(s store.Store, steps []failingStep) (visible []bool, _ error) {
	for _, step := range steps {
		is, err := step.visible(s)
		if err != nil {
			return nil, err
		}
		visible = append(visible, is)
	}
	return visible, nil
}

// failingSteps returns n steps of each kind.
func (f *feed) failingSteps(n int) (steps []failingStep) {
	f.Helper()
	ctx := f.Context()
	for i := range n {
		add := func(name string, do func(s store.Store, id string) error, visible func(s store.Store, id string) (bool, error), reports func(Report) bool) {
			id := numbered(name, i)
			f.createWebhooks(newWebhook(id, id))
			f.settled(id, "settled", driver.GiveUp)
			steps = append(steps, failingStep{
				name: name, webhook: id,
				do:      func(s store.Store) error { return do(s, id) },
				visible: func(s store.Store) (bool, error) { return visible(s, id) },
				reports: func(r Report) bool { return r.Ref.WebhookID == id && reports(r) || r.Scope.WebhookID == id },
			})
		}
		version2 := func(s store.Store, id string) (bool, error) {
			w, err := s.WebhookByID(ctx, id, id)
			return w.Version == 2, err
		}
		changed := func(r Report) bool { return r.Method == "Webhook" && r.Webhook.Version == 2 }
		add("Enqueue", func(s store.Store, id string) error {
			_, err := s.Enqueue(ctx, newEvent(id, "new"))
			return err
		}, func(s store.Store, id string) (bool, error) {
			_, err := s.EventDeliveries(ctx, id, "new")
			if errors.Is(err, apierr.ErrNotFound) {
				return false, nil
			}
			return true, err
		}, func(r Report) bool { return r.Method == "Add" && !r.Pending.First && r.Pending.Attempts == 0 })
		add("Redeliver", func(s store.Store, id string) error {
			return s.Redeliver(ctx, id, id, "settled", audit.Entry{})
		}, func(s store.Store, id string) (bool, error) {
			list, err := s.EventDeliveries(ctx, id, "settled")
			return err == nil && list[0].State == driver.Pending, err
		}, func(r Report) bool { return r.Method == "Add" && r.Pending.Attempts == 1 })
		add("UpdateWebhook", func(s store.Store, id string) error {
			_, err := s.UpdateWebhook(ctx, id, id, turnOff)
			return err
		}, version2, changed)
		add("Settle", func(s store.Store, id string) error {
			_, err := s.(driver.Deliveries).Settle(ctx, nil, []driver.HealthChange{
				{Account: id, WebhookID: id, Version: 1, Health: driver.WebhookHealth{Active: true, FailingSince: some}},
			})
			return err
		}, version2, changed)
		add("DeleteWebhook", func(s store.Store, id string) error {
			return s.DeleteWebhook(ctx, id, id, nil, audit.Entry{})
		}, func(s store.Store, id string) (bool, error) {
			_, err := s.WebhookByID(ctx, id, id)
			if errors.Is(err, apierr.ErrNotFound) {
				return true, nil
			}
			return false, err
		}, func(r Report) bool { return r.Method == "Forget" })
	}
	return steps
}
