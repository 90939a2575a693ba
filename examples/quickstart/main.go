// Quickstart runs the whole library on this machine: a storage service with API keys
// and webhooks, a client that calls it over HTTP, and a receiver that verifies events.
//
//	go run ./examples/quickstart         # run once, then exit
//	go run ./examples/quickstart -serve  # keep the service running, to try with a browser and curl
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

const account = "acct_1"

func main() {
	serve := flag.Bool("serve", false, "leave the service running and print the address of its settings pages and curl lines")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *serve)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run runs the example in a temporary directory.
func run(ctx context.Context, out io.Writer, serve bool) (err error) {
	dir, err := os.MkdirTemp("", "storageapi-quickstart-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	receiver, err := startReceiver()
	if err != nil {
		return err
	}
	defer func() { _ = receiver.server.Close() }()
	host, err := startHost(ctx, dir, receiver.trusted)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := host.stop(); err == nil {
			err = stopErr
		}
	}()
	fmt.Fprintf(out, "A storage service runs at %s, on %s/storage.db\n", host.url, dir)

	// The host creates the first key of an account in Go.
	_, token, err := host.api.Keys.Create(ctx, account, apikeys.CreateParams{Name: "bootstrap", Scopes: host.api.Keys.Scopes().All(), First: true})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "Made the first key in Go, with all scopes")

	if serve {
		return serveOn(ctx, out, host, receiver, token.Reveal())
	}
	return tell(ctx, out, host, receiver, client{host.url, token.Reveal()})
}

// tell runs the steps of the example: keys, refusals, environments, webhooks.
func tell(ctx context.Context, out io.Writer, host *host, receiver *receiver, admin client) error {
	// A narrower key, over HTTP.
	created, err := admin.call(ctx, 201, "POST", "/v2/api-keys", map[string]any{
		"name":      "reader",
		"scopes":    []string{"environments:read", "files:read", "account:read"},
		"expiresAt": time.Now().Add(24 * time.Hour).Format(time.RFC3339),
	})
	if err != nil {
		return err
	}
	reader := client{host.url, created["key"].(string)}
	fmt.Fprintf(out, "Made a narrower key over HTTP: %s with %v until %s\n", created["id"], created["scopes"], created["expiresAt"])

	// Requests that must be refused.
	refusals := []struct {
		who          string
		client       client
		status       int
		method, path string
		body         any
	}{
		{"no key", client{host.url, ""}, 401, "GET", "/v2/environments", nil},
		{"a made-up key", client{host.url, "sak_made_up"}, 401, "GET", "/v2/environments", nil},
		{"the narrow key, to create an environment", reader, 403, "POST", "/v2/environments", map[string]any{"name": "x"}},
		{"the narrow key, to create a wider one", reader, 403, "POST", "/v2/api-keys", map[string]any{
			"name": "wider", "scopes": []string{"files:write"},
		}},
	}
	for _, r := range refusals {
		answer, err := r.client.call(ctx, r.status, r.method, r.path, r.body)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Refused %s: %d %s\n", r.who, r.status, answer["error"].(map[string]any)["code"])
	}

	list, err := reader.call(ctx, 200, "GET", "/v2/environments", nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Listed environments with the narrow key: %v\n", list["data"])

	// A webhook for all six event types.
	webhook, err := reader.call(ctx, 201, "POST", "/v2/notifications/webhooks", map[string]any{
		"url": receiver.url, "events": alerts.EventTypes(), "balanceThreshold": "25.5",
	})
	if err != nil {
		return err
	}
	if err := receiver.trust(webhook["secret"].(string)); err != nil {
		return err
	}
	fmt.Fprintf(out, "Registered %s at %s\n", webhook["id"], receiver.url)

	// The host reports its data, and the library decides which events to send. Repeated
	// reports send nothing.
	for _, r := range reports(ctx, host.api.Alerts, 0) {
		for range 3 {
			if err := r.do(); err != nil {
				return err
			}
		}
		if r.tells == "" {
			fmt.Fprintf(out, "Reported %s\n", r.what)
			continue
		}
		select {
		case body := <-receiver.events:
			fmt.Fprintf(out, "Reported %s and received, signature verified: %s\n", r.what, body)
		case <-time.After(10 * time.Second):
			return fmt.Errorf("%s did not arrive", r.tells)
		}
	}

	// A deleted webhook receives nothing.
	if _, err := reader.call(ctx, 204, "DELETE", "/v2/notifications/webhooks/"+webhook["id"].(string), nil); err != nil {
		return err
	}
	event := webhooks.Event{ID: host.api.Webhooks.NewEventID(), Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := host.api.Webhooks.Publish(ctx, event); err != nil {
		return err
	}
	deliveries, err := host.api.Webhooks.EventDeliveries(ctx, account, event.ID)
	if err != nil {
		return err
	}
	select {
	case body := <-receiver.events:
		return fmt.Errorf("arrived after the webhook was deleted: %s", body)
	case <-time.After(500 * time.Millisecond):
	}
	fmt.Fprintf(out, "Deleted the webhook and published once more: %d deliveries, nothing arrived\n", len(deliveries))
	return nil
}

// trust sets the secret that the receiver verifies with.
func (r *receiver) trust(text string) error {
	secret, err := signing.ParseSecret(text)
	if err != nil {
		return err
	}
	r.secret.Store(&secret)
	return nil
}
