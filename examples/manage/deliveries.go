package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// A delivery is the state of an event's delivery to a webhook.
type delivery struct {
	EventID       string     `json:"eventId"`
	Type          string     `json:"type"`
	State         string     `json:"state"`
	PublishedAt   time.Time  `json:"publishedAt"`
	NextAttemptAt *time.Time `json:"nextAttemptAt"`
	Attempts      []attempt  `json:"attempts"`
}

// A listedDelivery is a delivery in a list, which has only the last attempt.
type listedDelivery struct {
	EventID      string   `json:"eventId"`
	State        string   `json:"state"`
	AttemptCount int      `json:"attemptCount"`
	LastAttempt  *attempt `json:"lastAttempt"`
}

// A recovery is a job that sends missed events to a webhook again.
type recovery struct {
	ID        string `json:"id"`
	Recovered int    `json:"recovered"`
	Done      bool   `json:"done"`
}

func manageDeliveries(ctx context.Context, out io.Writer, admin client, receiver *receiver) error {
	var hook webhook
	wanted := map[string]any{"url": receiver.url, "events": []string{"balance.low"}}
	if _, err := admin.call(ctx, "POST", webhooksPath, request{body: wanted}, &hook); err != nil {
		return err
	}
	path := webhooksPath + "/" + hook.ID

	fmt.Fprintln(out, "An event is refused by the receiver, which does not know the secret yet:")
	dead, err := spend(ctx, admin)
	if err != nil {
		return err
	}
	failed, err := wait(ctx, admin, path, dead, "dead")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s: %s after %d attempt: %s\n", failed.Type, failed.State, len(failed.Attempts), *failed.Attempts[0].Error)

	fmt.Fprintln(out, "Now it does. Deliver that event once more:")
	if err := receiver.trust(hook.Secret); err != nil {
		return err
	}
	if _, err := admin.call(ctx, "POST", path+"/deliveries/"+dead+"/redeliver", request{}, nil); err != nil {
		return err
	}
	redelivered, err := wait(ctx, admin, path, dead, "delivered")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s after %d attempts\n", redelivered.State, len(redelivered.Attempts))

	fmt.Fprintln(out, "What happens while the webhook is off is skipped:")
	if _, err := admin.call(ctx, "PATCH", path, request{body: map[string]bool{"active": false}}, nil); err != nil {
		return err
	}
	for range 3 {
		if _, err := spend(ctx, admin); err != nil {
			return err
		}
	}
	skipped, err := all[listedDelivery](ctx, admin, path+"/deliveries")
	if err != nil {
		return err
	}
	for _, d := range skipped {
		fmt.Fprintf(out, "  %s %s\n", d.EventID, d.State)
	}

	fmt.Fprintln(out, "Turn it on again and recover what it missed:")
	if _, err := admin.call(ctx, "PATCH", path, request{body: map[string]bool{"active": true}}, nil); err != nil {
		return err
	}
	var job recovery
	if _, err := admin.call(ctx, "POST", path+"/recoveries", request{body: map[string]any{"states": []string{"skipped"}}}, &job); err != nil {
		return err
	}
	for !job.Done {
		if err := pause(ctx); err != nil {
			return err
		}
		if _, err := admin.call(ctx, "GET", path+"/recoveries/"+job.ID, request{}, &job); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "  recovered %d\n", job.Recovered)
	for _, d := range skipped {
		if _, err := wait(ctx, admin, path, d.EventID, "delivered"); err != nil {
			return err
		}
	}
	_, err = admin.call(ctx, "DELETE", path, request{}, nil)
	return err
}

// spend makes the service publish an event that the balance is low, and returns the event's ID.
func spend(ctx context.Context, c client) (eventID string, err error) {
	var spent struct {
		EventID string `json:"eventId"`
	}
	_, err = c.call(ctx, "POST", "/v2/spend", request{}, &spent)
	return spent.EventID, err
}

// wait waits until the event's delivery has the given state, and returns it.
func wait(ctx context.Context, c client, path, eventID, state string) (delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		var d delivery
		if _, err := c.call(ctx, "GET", path+"/deliveries/"+eventID, request{}, &d); err != nil {
			return d, err
		}
		if d.State == state {
			return d, nil
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
