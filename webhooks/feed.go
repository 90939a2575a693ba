package webhooks

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

// A feed passes reports from the store to the scheduler.
type feed struct {
	to       *scheduler.Scheduler
	activity *activity
}

var _ driver.Scheduler = feed{}

// begun records that the store has begun to report deliveries.
func (f feed) begun() {
	if f.activity.run.Load().state == RunWaiting {
		f.activity.enter(RunUnderWay)
	}
	f.activity.deliver.Store(nil)
}

func (f feed) Add(list []driver.PendingDelivery) {
	f.begun()
	pending := make([]scheduler.Pending, len(list))
	for i := range list {
		p := &list[i]
		pending[i] = scheduler.Pending{
			Webhook: recordOf(p.Webhook), Group: int32(p.Group), Number: p.Number, Due: p.Due,
			Attempts: p.Attempts, Recovered: p.Recovered, First: p.First,
		}
	}
	f.to.Add(pending)
}

func (f feed) Nudge(ref driver.DeliveryRef) { f.to.Nudge(ref.WebhookID, ref.Number) }

func (f feed) Webhook(w *Webhook) { f.to.Update(recordOf(w)) }

func (f feed) Probe(webhookID string) { f.to.Probe(webhookID) }

func (f feed) Forget(scope driver.Scope) {
	f.to.Forget(scope.WebhookID, scope.Account, int32(scope.Group))
}

func (f feed) Ended(refs []driver.DeliveryRef) {
	numbers := make(map[string][]uint64)
	for _, ref := range refs {
		numbers[ref.WebhookID] = append(numbers[ref.WebhookID], ref.Number)
	}
	for id, list := range numbers {
		f.to.Ended(id, list)
	}
}

func (f feed) Pause(groups []driver.Group) {
	list := make([]int32, len(groups))
	for i, g := range groups {
		list[i] = int32(g)
	}
	f.to.Pause(list)
}

func (f feed) UnderWay() map[driver.Group]int {
	n := make(map[driver.Group]int)
	for g, attempts := range f.to.UnderWay() {
		n[driver.Group(g)] = attempts
	}
	return n
}

func (f feed) Trouble(err error) {
	f.begun()
	f.to.Trouble(err)
}

// recordOf converts a webhook to the scheduler's type.
func recordOf(w *Webhook) scheduler.Webhook {
	standing := scheduler.Untried
	switch {
	case w.Proven():
		standing = scheduler.Proven
	case !w.FailingSince.IsZero():
		standing = scheduler.Failing
	}
	return scheduler.Webhook{
		ID: w.ID, Account: w.Account, Version: w.Version, On: w.Claimable(), PausedUntil: w.PausedUntil, Standing: standing, Record: w,
	}
}

const steadyAfter = time.Minute // after a Deliver call of this length, the pauses start over

// follow runs the store's Deliver, which reports pending deliveries, until ctx is done. If
// Deliver fails, follow calls it again, with an empty scheduler.
func (d *dispatcher) follow(ctx context.Context) {
	for pause := time.Duration(0); ; {
		began := time.Now()
		err := d.store.Deliver(ctx, feed{d.scheduler, d.activity})
		if ctx.Err() != nil {
			d.scheduler.Clear(nil)
			return
		}
		if err == nil {
			err = errors.New("the store has stopped reporting deliveries")
		}
		d.scheduler.Clear(err)
		d.activity.deliver.Store(&storeFailure{time.Now(), err})
		if time.Since(began) > steadyAfter {
			pause = 0
		}
		pause = d.halt.backoff("deliver", pause, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
