package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

// runNode serves requests and delivers events until ctx is done. The node is an ordinary
// host that shares its connection pool with the store.
func runNode(ctx context.Context, dsn, address string) (err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Close()) }()

	host := &host{pool, store, api}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.HandlerFunc(host.environments)))
	mux.Handle("POST /v2/files/{id}", api.Auth.Require(scopes.FilesWrite, http.HandlerFunc(host.storeFile)))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	delivered := make(chan error, 1)
	go func() { delivered <- api.Run(ctx) }()
	if err := listenAndServe(ctx, server); err != nil {
		return err
	}
	return <-delivered
}

// listenAndServe serves until ctx is done, and then waits up to 5 seconds for the requests
// in flight.
func listenAndServe(ctx context.Context, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
}

type host struct {
	pool   *pgxpool.Pool
	events *postgres.Store
	api    *storageapi.Handler
}

func (h *host) environments(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": []string{"production"}})
}

// storeFile stores a file that expires in an hour and publishes an event about it, in one
// transaction.
func (h *host) storeFile(w http.ResponseWriter, r *http.Request) {
	caller, _ := auth.PrincipalFrom(r.Context())
	expires := time.Now().Add(time.Hour)
	err := pgx.BeginFunc(r.Context(), h.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(r.Context(), `insert into files (account, id, expires_at) values ($1, $2, $3)
			on conflict (account, id) do update set expires_at = excluded.expires_at`, caller.Account, r.PathValue("id"), expires)
		if err != nil {
			return err
		}
		return h.events.PublishTx(r.Context(), tx, h.api.Webhooks, webhooks.Event{
			Account: caller.Account,
			Data:    alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: r.PathValue("id"), ExpiresAt: expires}}},
		})
	})
	if err != nil {
		http.Error(w, "the file was not stored", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
