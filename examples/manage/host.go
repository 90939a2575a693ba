package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// A host is a storage service that mounts the library.
type host struct {
	url  string
	key  string // has all scopes
	stop func()
}

// newHost starts a service on a file in dir. It allows deliveries to this machine, which
// are refused by default, and does not retry, so that the example need not wait.
func newHost(ctx context.Context, dir string, receiver *receiver) (*host, error) {
	api, err := storageapi.NewHandler(storageapi.Config{
		Path: filepath.Join(dir, "storage.db"),
		Webhooks: webhooks.Config{
			Outbound: webhooks.Outbound{
				RootCAs:       receiver.roots,
				AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			},
			Retry: webhooks.RetryPolicy{Delays: []time.Duration{}},
		},
		Logger: slog.New(slog.DiscardHandler), // failures are part of the example
	})
	if err != nil {
		return nil, err
	}
	_, token, err := api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "first", Scopes: api.Keys.Scopes().All(), First: true})
	if err != nil {
		_ = api.Close()
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = api.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/openapi.json", api.OpenAPIHandler())
	mux.Handle("POST /v2/spend", api.Auth.Require(scopes.FilesWrite, spending(api.Webhooks)))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	go func() { _ = api.Run(ctx) }() // delivers webhooks

	return &host{
		url: "http://" + listener.Addr().String(),
		key: token.Reveal(),
		stop: func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = server.Shutdown(ctx)
			_ = api.Close()
		},
	}, nil
}

// spending is the host's own route. It leaves the account with a low balance, so the
// host publishes an event.
func spending(hooks *webhooks.WebhookService) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := auth.PrincipalFrom(r.Context())
		event := webhooks.Event{
			ID:      hooks.NewEventID(),
			Account: caller.Account,
			Data:    alerts.BalanceLow{Balance: 9_500_000_000, Threshold: 12_500_000_000},
		}
		if err := hooks.Publish(r.Context(), event); err != nil {
			auth.WriteInternal(w)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(map[string]string{"eventId": event.ID})
	})
}
