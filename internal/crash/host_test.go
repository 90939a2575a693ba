//go:build unix

package crash_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testdir"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

// hostVariable is the environment variable that makes a process a host. Its value is a hostConfig
// as JSON.
const hostVariable = "STORAGEAPI_CRASH_HOST"

type hostConfig struct {
	Path      string   // of the file
	Authority []byte   // the receiver's certificate, DER
	Bootstrap []string // accounts that need a key
	Point     point    // where to die; zero means never
}

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(hostVariable)
	if !ok {
		testdir.InMemory()
		os.Exit(m.Run())
	}
	var config hostConfig
	err := json.Unmarshal([]byte(text), &config)
	if err == nil {
		err = runHost(config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

// runHost serves until standard input ends, and then shuts down properly. It prints "key", account
// and token for each account to bootstrap, and then "ready" and its address.
func runHost(config hostConfig) error {
	authority, err := x509.ParseCertificate(config.Authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	c := storageapi.Config{
		Path: config.Path,
		Webhooks: webhooks.Config{
			Outbound: webhooks.Outbound{
				AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
				RootCAs:       roots,
			},
			Retry: webhooks.RetryPolicy{Delays: retries()},
			Concurrency: webhooks.Concurrency{
				Total:      32,
				PerWebhook: 4,
			},
			MaxPerAccount: -1, // killed hosts leave webhooks behind
		},
		Keys:   apikeys.Config{MaxPerAccount: -1},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if config.Point != (point{}) {
		file, err := bolt.Open(config.Path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		c.Path, c.Store = "", &deadly{Store: file, point: config.Point, die: die}
	}
	api, err := storageapi.NewHandler(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- api.Run(ctx) }()

	for _, account := range config.Bootstrap {
		_, token, err := api.Keys.Create(ctx, account, apikeys.CreateParams{Name: "admin", Scopes: scopes.Specified()})
		if err != nil {
			return err
		}
		fmt.Println("key", account, token.Reveal())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(api)}
	go func() { _ = server.Serve(listener) }()
	fmt.Println("ready", "http://"+listener.Addr().String())

	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	cancel()
	if err := <-ran; err != nil {
		return err
	}
	return api.Close()
}

// retries returns many short delays, so that no delivery ends as dead.
func retries() []time.Duration {
	waits := make([]time.Duration, 100)
	for i := range waits {
		waits[i] = 20 * time.Millisecond
	}
	return waits
}

// die kills this process.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing runs after the kill
}

// routes returns the service's routes and the routes through which clients call the Go API.
func routes(api *storageapi.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.HandleFunc("POST /publish/{account}/{id}/{type}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, api.Webhooks.Publish(r.Context(), webhooks.Event{
			ID:      r.PathValue("id"),
			Account: r.PathValue("account"),
			Data:    payloads[webhooks.EventType(r.PathValue("type"))],
		}))
	})
	mux.HandleFunc("GET /recovered/{account}/{id}", func(w http.ResponseWriter, r *http.Request) {
		recovery, err := api.Webhooks.Recovery(r.Context(), r.PathValue("account"), r.PathValue("id"))
		answerIf(w, recovery.Done, err)
	})
	mux.HandleFunc("GET /delivered", func(w http.ResponseWriter, r *http.Request) {
		stats, err := api.Webhooks.Stats(r.Context())
		answerIf(w, stats.Pending == 0, err)
	})
	mux.HandleFunc("POST /redeliver/{account}/{id}/{event}", func(w http.ResponseWriter, r *http.Request) {
		account, id, event := r.PathValue("account"), r.PathValue("id"), r.PathValue("event")
		d, err := api.Webhooks.Delivery(r.Context(), account, id, event)
		if err == nil && d.State == webhooks.Delivered {
			err = api.Webhooks.Redeliver(r.Context(), account, id, event)
		}
		answerIf(w, d.State == webhooks.Delivered, err)
	})
	mux.HandleFunc("POST /watch/{account}/{threshold}", func(w http.ResponseWriter, r *http.Request) {
		_, err := api.Webhooks.Create(r.Context(), r.PathValue("account"), webhooks.CreateParams{
			URL: r.URL.Query().Get("url"), Events: alerts.EventTypes(), Threshold: uint64(number(r, "threshold")),
		})
		answer(w, err)
	})
	mux.HandleFunc("POST /balance/{account}/{amount}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, api.Alerts.ReportBalance(r.Context(), r.PathValue("account"), alerts.Amount(number(r, "amount"))))
	})
	mux.HandleFunc("POST /bandwidth/{account}/{used}/{limit}/{period}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, api.Alerts.ReportBandwidth(r.Context(), r.PathValue("account"), number(r, "used"), number(r, "limit"), r.PathValue("period")))
	})
	mux.HandleFunc("POST /files/{account}/{first}/{count}/{expires}", func(w http.ResponseWriter, r *http.Request) {
		var files []alerts.ExpiringFile
		for i := range number(r, "count") {
			files = append(files, alerts.ExpiringFile{ID: strconv.FormatInt(number(r, "first")+i, 10), ExpiresAt: time.Unix(number(r, "expires"), 0)})
		}
		answer(w, api.Alerts.ReportFiles(r.Context(), r.PathValue("account"), files))
	})
	return mux
}

// number returns the number in a path parameter.
func number(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.PathValue(name), 10, 64)
	return n
}

// payloads holds a payload for each published event type.
var payloads = map[webhooks.EventType]webhooks.Data{
	alerts.TypeBalanceLow: alerts.BalanceLow{Balance: 1},
	alerts.TypeFilesExpiring: alerts.FilesExpiring{Files: []alerts.ExpiringFile{
		{ID: "file", ExpiresAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)},
	}},
}

// answer responds with 204, or 500 if err is not nil.
func answer(w http.ResponseWriter, err error) { answerIf(w, true, err) }

// answerIf is like answer, but responds with 409 instead of 204 if the condition so is false.
func answerIf(w http.ResponseWriter, so bool, err error) {
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case !so:
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
