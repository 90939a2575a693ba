package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// serveOn keeps the service running until it is interrupted. It registers a webhook,
// makes a report every few seconds, and prints the received events. It also prints the
// address of the settings pages and curl lines to try.
func serveOn(ctx context.Context, out io.Writer, host *host, receiver *receiver, key string) error {
	webhook, err := host.api.Webhooks.Create(ctx, account, webhooks.CreateParams{
		URL: receiver.url, Events: alerts.EventTypes(), Threshold: 25_500_000_000,
	})
	if err != nil {
		return err
	}
	receiver.secret.Store(&webhook.Secret)

	fmt.Fprintf(out, `
See it in a browser: %s/settings/

Try it in another terminal:

export BASE=%s KEY=%s
curl -sS $BASE/v2/environments -H "Api-Key: $KEY"
curl -sS $BASE/v2/environments -H "Api-Key: $KEY" -H 'Content-Type: application/json' -d '{"name":"testing"}'
curl -sS $BASE/v2/api-keys -H "Api-Key: $KEY" -H 'Content-Type: application/json' -d '{"name":"reader","scopes":["files:read"]}'
curl -sS $BASE/v2/api-keys -H "Api-Key: $KEY"
curl -sS $BASE/v2/notifications/webhooks -H "Api-Key: $KEY" -H 'Content-Type: application/json' -d '{"url":"%s","events":["balance.low"],"balanceThreshold":"12.5"}'
curl -sS $BASE/v2/notifications/webhooks -H "Api-Key: $KEY"
curl -sS -X DELETE $BASE/v2/notifications/webhooks/%s -H "Api-Key: $KEY" -w '%%{http_code}\n'

The last one ends what arrives below. (A webhook that you register has a secret
of its own, which this receiver does not know: it answers 401, and the service
tries again.) Interrupt to stop.

`, host.url, host.url, key, receiver.url, webhook.ID)

	for number := 0; ; number++ {
		for _, r := range reports(ctx, host.api.Alerts, number) {
			if err := r.do(); err != nil {
				return ended(ctx, err)
			}
			fmt.Fprintf(out, "Reported %s\n", r.what)
			next := time.After(3 * time.Second)
			for waiting := true; waiting; {
				select {
				case body := <-receiver.events:
					fmt.Fprintf(out, "Received, signature verified: %s\n", body)
				case <-next:
					waiting = false
				case <-ctx.Done():
					return nil
				}
			}
		}
	}
}

// ended returns err, or nil if the interrupt caused err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
