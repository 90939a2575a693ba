package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/storageapi/storageapi/client"
)

func manageDeliveries(ctx context.Context, out io.Writer, admin *client.Client, receiver *receiver) error {
	hook, err := admin.CreateWebhook(ctx, client.CreateWebhook{URL: receiver.url, Events: []string{"balance.low"}})
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "An event is refused by the receiver, which does not know the secret yet:")
	dead, err := spend(ctx, admin)
	if err != nil {
		return err
	}
	failed, err := wait(ctx, admin, hook.ID, dead, "dead")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s: %s after %d attempt: %s\n", failed.Type, failed.State, len(failed.Attempts), failed.Attempts[0].Error)

	fmt.Fprintln(out, "Now it does. Deliver that event once more:")
	if err := receiver.trust(hook.Secret.Reveal()); err != nil {
		return err
	}
	if _, err := admin.Redeliver(ctx, hook.ID, dead); err != nil {
		return err
	}
	redelivered, err := wait(ctx, admin, hook.ID, dead, "delivered")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s after %d attempts\n", redelivered.State, len(redelivered.Attempts))

	fmt.Fprintln(out, "What happens while the webhook is off is skipped:")
	if _, err := admin.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{Active: client.Some(false)}); err != nil {
		return err
	}
	for range 3 {
		if _, err := spend(ctx, admin); err != nil {
			return err
		}
	}
	var skipped []client.Delivery
	for d, err := range admin.Deliveries(ctx, hook.ID, client.DeliveryQuery{}) {
		if err != nil {
			return err
		}
		skipped = append(skipped, d)
		fmt.Fprintf(out, "  %s %s\n", d.EventID, d.State)
	}

	fmt.Fprintln(out, "Turn it on again and recover what it missed:")
	if _, err := admin.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{Active: client.Some(true)}); err != nil {
		return err
	}
	job, err := admin.CreateRecovery(ctx, hook.ID, client.CreateRecovery{States: []string{"skipped"}})
	for err == nil && !job.Done {
		if err = pause(ctx); err == nil {
			job, err = admin.Recovery(ctx, hook.ID, job.ID)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  recovered %d\n", job.Recovered)
	for _, d := range skipped {
		if _, err := wait(ctx, admin, hook.ID, d.EventID, "delivered"); err != nil {
			return err
		}
	}
	return admin.DeleteWebhook(ctx, hook.ID)
}

// spend makes the service publish an event that the balance is low, and returns the event's ID.
func spend(ctx context.Context, c *client.Client) (eventID string, err error) {
	var spent struct {
		EventID string `json:"eventId"`
	}
	err = c.Do(ctx, "POST", "/spend", nil, &spent)
	return spent.EventID, err
}

// wait waits until the event's delivery has the given state, and returns it.
func wait(ctx context.Context, c *client.Client, webhookID, eventID, state string) (client.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		d, err := c.Delivery(ctx, webhookID, eventID)
		if err != nil || d.State == state {
			return d, err
		}
		if err := pause(ctx); err != nil {
			return d, fmt.Errorf("the delivery is %s, not %s: %w", d.State, state, err)
		}
	}
}

// pause waits between two polls.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}
