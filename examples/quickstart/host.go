package main

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// A host is a storage service that mounts the library.
type host struct {
	api  *storageapi.Handler
	url  string
	stop func() error
}

// startHost starts a service on a file in dir. Its deliveries trust the receiver's
// certificate, and may go to this machine, which is refused by default.
func startHost(ctx context.Context, dir string, trusted *x509.CertPool) (*host, error) {
	api, err := storageapi.NewHandler(storageapi.Config{
		Path: filepath.Join(dir, "storage.db"),
		Webhooks: webhooks.Config{
			Outbound: webhooks.Outbound{
				RootCAs:       trusted,
				AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			},
		},
	})
	if err != nil {
		return nil, err
	}

	envs := &environments{list: map[string][]environment{"acct_1": {{"production"}, {"staging"}}}}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.HandlerFunc(envs.serveList)))
	mux.Handle("POST /v2/environments", api.Auth.Require(scopes.EnvironmentsWrite, http.HandlerFunc(envs.serveCreate)))

	// The settings pages are behind the host's own login.
	logins := &sessions{accounts: make(map[string]string)}
	settings, err := dashboard.New(dashboard.Config{
		API: api, Account: logins.account, Title: "Storage settings", SignIn: "/login", SignOut: "/logout",
	})
	if err != nil {
		_ = api.Close()
		return nil, err
	}
	mux.Handle("/settings/", settings)
	mux.HandleFunc("GET /login", logins.ask)
	mux.HandleFunc("POST /login", logins.begin)
	mux.Handle("POST /logout", http.NewCrossOriginProtection().Handler(http.HandlerFunc(logins.end)))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = api.Close()
		return nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	go func() { _ = api.Run(ctx) }() // delivers webhooks

	return &host{
		api: api,
		url: "http://" + listener.Addr().String(),
		stop: func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return errors.Join(server.Shutdown(ctx), api.Close())
		},
	}, nil
}
