// Manage uses package client to manage API keys and webhooks, and handles the documented errors. It
// starts its own storage service and receiver.
//
//	go run ./examples/manage         # run once, then exit
//	go run ./examples/manage -serve  # keep both running, for docs/http.md
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/storageapi/storageapi/client"
)

func main() {
	serve := flag.Bool("serve", false, "leave the service running")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *serve)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "manage:", err)
		os.Exit(1)
	}
}

// run starts a service on a file in a temporary directory, and manages keys and
// webhooks.
func run(ctx context.Context, out io.Writer, serve bool) error {
	dir, err := os.MkdirTemp("", "storageapi-manage-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	receiver := newReceiver()
	defer receiver.server.Close()
	host, err := newHost(ctx, dir, receiver)
	if err != nil {
		return err
	}
	defer host.stop()

	if serve {
		fmt.Fprintf(out, "The service runs, until it is interrupted. In another terminal:\n\nexport BASE=%s KEY=%s HOOK=%s\n", host.url, host.key, receiver.open)
		<-ctx.Done()
		return nil
	}
	base := host.url + "/v2"
	admin, err := client.New(base, host.key, client.Options{})
	if err != nil {
		return err
	}
	if err := manageKeys(ctx, out, base, admin); err != nil {
		return err
	}
	if err := manageWebhooks(ctx, out, admin, receiver); err != nil {
		return err
	}
	return manageDeliveries(ctx, out, admin, receiver)
}
