package simulation_test

import (
	"context"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// crowd gives many accounts one webhook each, whose receiver hangs, and publishes events to them.
// Healthy receivers must still get their events in time.
func (w *world) crowd(ctx context.Context) {
	time.Sleep(time.Hour)
	made := make(map[string]string) // IDs by account
	for i := range w.plan.crowd {
		name := fmt.Sprint("x", i)
		account := "crowd" + name
		w.receivers.add(name+"-1", account, hanging)
		hook, err := w.reach().api.Webhooks.Create(ctx, account, webhooks.CreateParams{
			URL: "https://" + name + "-1.example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow},
		})
		if err == nil {
			made[account] = hook.ID
		}
	}
	w.tell("crowd", nil, "%d receivers hang", len(made))
	for round := range 3 {
		for account := range made {
			for range 4 {
				_ = w.reach().api.Webhooks.Publish(ctx, webhooks.Event{Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
			}
		}
		w.tell("crowd", nil, "is owed more")
		for range 5 {
			for _, a := range w.accounts {
				e := w.events.add(a)
				a.publisher.publishOne(ctx, e, -1)
			}
			time.Sleep(time.Duration(1+round) * 3 * time.Second)
		}
	}
	for account, id := range made {
		for range 100 {
			if err := w.reach().api.Webhooks.Delete(ctx, account, id, webhooks.DeleteParams{}); err == nil {
				break
			}
			time.Sleep(10 * time.Second)
		}
	}
	w.tell("crowd", nil, "is gone")
}
