package cli

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/storageapi/storageapi/client"
)

func listWebhooks(r *run) error {
	r.online()
	_, c, err := r.parseAccount(1, 1)
	if err != nil {
		return err
	}
	return list(r, "ID STATE FAILING-SINCE URL EVENTS", c.Webhooks(r.ctx), func(w client.Webhook) []string {
		return []string{w.ID, stateOf(&w), timeText(w.FailingSince), w.URL, strings.Join(w.Events, ",")}
	})
}

// stateOf returns whether events are sent to a webhook now.
func stateOf(w *client.Webhook) string {
	switch {
	case !w.Active:
		return "off"
	case w.Held:
		return "held"
	case w.Paused:
		return "paused"
	}
	return "on"
}

// A failingWebhook is a webhook in a list of all accounts.
type failingWebhook struct {
	Account      string    `json:"account"`
	ID           string    `json:"id"`
	URL          string    `json:"url"`
	OffReason    string    `json:"offReason,omitzero"`
	OffAt        time.Time `json:"offAt,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
}

func listFailing(r *run) error {
	r.online()
	state := r.flags.String("state", "failing", "`which` webhooks: failing, off or held")
	_, c, err := r.parseService(0, 0)
	if err != nil {
		return err
	}
	items := lines[failingWebhook](r, c, "/webhooks?state="+url.QueryEscape(*state))
	return list(r, "ID FAILING-SINCE OFF-SINCE ACCOUNT URL", items, func(w failingWebhook) []string {
		return []string{w.ID, timeText(w.FailingSince), timeText(w.OffAt), w.Account, w.URL}
	})
}

func explain(r *run) error {
	return eachEvent(r, "EVENT REASON SUMMARY", (*client.Client).Explain, func(x client.Explanation) []string {
		return []string{x.EventID, x.Reason, x.Summary}
	})
}

func resend(r *run) error {
	return eachEvent(r, "EVENT STATE NEXT-ATTEMPT TYPE", (*client.Client).Redeliver, func(d client.Delivery) []string {
		return []string{d.EventID, d.State, timeText(d.NextAttemptAt), d.Type}
	})
}

// eachEvent calls call for each event and lists the results. The arguments are an account, a
// webhook and events.
func eachEvent[T any](r *run, columns string, call func(c *client.Client, ctx context.Context, webhookID, eventID string) (T, error), row func(T) []string) error {
	r.online()
	args, c, err := r.parseAccount(3, math.MaxInt)
	if err != nil {
		return err
	}
	return list(r, columns, func(yield func(T, error) bool) {
		for _, event := range args[2:] {
			if result, err := call(c, r.ctx, args[1], event); !yield(result, err) {
				return
			}
		}
	}, row)
}

// The intervals of recoverEvents.
const (
	recoveryPoll  = 300 * time.Millisecond
	recoveryStuck = 10 * time.Second // how long a recovery may make no progress
)

func recoverEvents(r *run) error {
	var p client.CreateRecovery
	r.online()
	r.timeFlag(&p.From, "from", "only events published then or later; default: all")
	r.timeFlag(&p.To, "to", "only events published before; default: all")
	r.listFlag(&p.States, "states", "only deliveries in these states; default: dead,skipped")
	args, c, err := r.parseAccount(2, 2)
	if err != nil {
		return err
	}
	progress := r.bar()
	if progress.live {
		query := client.DeliveryQuery{States: p.States, From: p.From, To: p.To}
		if len(query.States) == 0 {
			query.States = []string{"dead", "skipped"}
		}
		for _, err := range c.Deliveries(r.ctx, args[1], query) {
			if err != nil {
				return err
			}
			progress.total++
		}
	}
	job, err := c.CreateRecovery(r.ctx, args[1], p)
	if err != nil {
		return err
	}
	tellStored := func() { fmt.Fprintf(r.Stderr, "%s %s is stored; it goes on once a host runs\n", r.Name, job.ID) }
	if r.ops == "" { // the host cannot run while this process has its file open
		tellStored()
		return r.show(job)
	}
	moved, told := time.Now(), false
	for !job.Done {
		if progress.live {
			progress.draw("recovering", job.Recovered)
		}
		if time.Since(moved) > recoveryStuck && !told {
			told = true
			tellStored()
		}
		select {
		case <-time.After(recoveryPoll):
		case <-r.ctx.Done():
			return fmt.Errorf("%s goes on in the host: %w", job.ID, r.ctx.Err())
		}
		before := job.Recovered
		if job, err = c.Recovery(r.ctx, args[1], job.ID); err != nil {
			return err
		}
		if job.Recovered > before {
			moved = time.Now()
		}
	}
	if progress.live {
		progress.total = job.Recovered
		progress.draw("recovering", job.Recovered)
	}
	progress.end()
	return r.show(job)
}

func release(r *run) error {
	r.online()
	r.yesFlag()
	if _, err := r.parse(0, 0); err != nil {
		return err
	}
	if err := r.confirm("This sends the pending events of all webhooks on hold."); err != nil {
		return err
	}
	c, err := r.service("", "")
	if err != nil {
		return err
	}
	var released struct {
		Released int `json:"released"`
	}
	if err := c.Do(r.ctx, "POST", "/release", nil, &released); err != nil {
		return err
	}
	return r.show(released)
}
