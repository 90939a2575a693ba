// Host is a complete service to copy. It has its own routes, scopes and event next to the API, the
// settings pages behind a login, metrics, routes and commands for operators, and a graceful
// shutdown.
//
//	PASSWORD=… go run ./examples/host   # http://127.0.0.1:8080; on http://127.0.0.1:8081 /metrics and the operations
//	OPS=http://127.0.0.1:8081 go run ./examples/host keys list acct_1   # without a command: the list of commands
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/cli"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "the address of the service")
	metrics := flag.String("metrics", "127.0.0.1:8081", "the address of metrics and operations, which must not be public")
	path := flag.String("file", "host.db", "the file that keeps everything")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if flag.NArg() > 0 {
		status := cli.Run(ctx, flag.Args(), commands(*path))
		stop()
		os.Exit(status)
	}
	err := run(ctx, os.Stdout, *path, *listen, *metrics, os.Getenv("PASSWORD"))
	stop()
	if err != nil {
		log.Fatal("host: ", err) // run has already closed everything
	}
}

// commands returns the configuration of the commands for operators.
func commands(path string) cli.Config {
	return cli.Config{Open: func(context.Context) (*storageapi.Handler, func() error, error) {
		file, err := bolt.Open(path)
		if err != nil {
			return nil, nil, err
		}
		api, err := storageapi.NewHandler(new(host).config(file))
		if err != nil {
			return nil, nil, errors.Join(err, file.Close())
		}
		return api, func() error { return errors.Join(api.Close(), file.Close()) }, nil
	}}
}

// run serves until ctx is done, or until something fails.
func run(ctx context.Context, out io.Writer, path, listen, metrics, password string) (err error) {
	h := &host{password: sha256.Sum256([]byte(password)), sessions: make(map[string]time.Time)}
	if password == "" {
		return errors.New("set PASSWORD to the password to sign in with")
	}
	file, err := bolt.Open(path, bolt.Wait(30*time.Second)) // waits for the previous process to exit
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }() // 4. the file is closed
	if h.api, err = storageapi.NewHandler(h.config(file)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.api.Close()) }() // 3. attempts in flight finish
	if err := h.firstKey(ctx, out); err != nil {
		return err
	}
	public, err := h.routes()
	if err != nil {
		return err
	}

	var ended sync.WaitGroup
	defer ended.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	ended.Go(func() { failed <- h.api.Run(ctx) }) // delivers webhooks
	for address, handler := range map[string]http.Handler{listen: public, metrics: h.operations()} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		ended.Go(func() { failed <- server.Serve(listener) })
		defer shutdown(server) // 2. requests in flight finish
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done(): // 1. Run starts no further attempts
		return nil
	}
}

func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Print("host: requests were cut short: ", err)
	}
}

// account is the only account here. A real host has one for each customer.
const account = "acct_1"

type host struct {
	api      *storageapi.Handler
	attempts [2]atomic.Uint64 // failed and succeeded attempts
	password [sha256.Size]byte

	mu       sync.Mutex
	teams    []teamCreated
	sessions map[string]time.Time // end of each session, by cookie value
}

// The host's own scopes.
const (
	teamsRead  scopes.Scope = "teams:read"
	teamsWrite scopes.Scope = "teams:write"
)

// A teamCreated is the host's own event. Webhooks receive its JSON as data.
type teamCreated struct {
	TeamID string `json:"teamId"`
	Name   string `json:"name"`
}

func (teamCreated) EventType() webhooks.EventType { return "teams.created" }

// config declares the host's scopes and event, and counts attempts.
func (h *host) config(file *bolt.Store) storageapi.Config {
	return storageapi.Config{
		Store: file,
		Scopes: []scopes.Declaration{
			{Scope: teamsRead, Description: "List teams"},
			{Scope: teamsWrite, Description: "Create teams"},
		},
		Webhooks: webhooks.Config{
			Events: []webhooks.EventDeclaration{{
				Type: "teams.created", Description: "Team created", Scope: teamsRead, Example: teamCreated{TeamID: "team_1", Name: "Research"},
			}},
		},
		Observe: observe.Observer{Attempted: func(a observe.Attempt) {
			succeeded := 0
			if a.Result == observe.Delivered {
				succeeded = 1
			}
			h.attempts[succeeded].Add(1)
		}},
		RateLimit: auth.RateLimit{PerSecond: 50, Burst: 100},
		Notify:    notify,
	}
}

// notify is called for each audit entry until it returns nil, so it may get an entry more than
// once. A host with many customers sends mail here.
func notify(_ context.Context, n audit.Entry) error {
	switch n.Action {
	case audit.KeyExpiring:
		log.Printf("host: key %s of %s expires at %v", n.Target.ID, n.Account, n.Until)
	case audit.WebhookFailing, audit.WebhookOff, audit.WebhookRecovered:
		log.Printf("host: %s: %s of %s %s", n.Action, n.Target.ID, n.Account, n.Reason)
	}
	return nil
}

// firstKey prints a key with all scopes, at the first start only.
func (h *host) firstKey(ctx context.Context, out io.Writer) error {
	everything := h.api.Keys.Scopes().All()
	_, token, err := h.api.Keys.Create(ctx, account, apikeys.CreateParams{Name: "first", Scopes: everything, First: true})
	switch {
	case err == nil:
		fmt.Fprintln(out, "export KEY="+token.Reveal())
	case !errors.Is(err, apikeys.ErrNotFirst):
		return err
	}
	return nil
}

// routes returns the public routes.
func (h *host) routes() (http.Handler, error) {
	settings, err := dashboard.New(dashboard.Config{
		API: h.api, Account: h.accountOf, Actor: func(*http.Request) string { return "admin" }, Title: "Teams", SignIn: "/sign-in", SignOut: "/sign-out", Home: "/",
	})
	if err != nil {
		return nil, err
	}
	sameOrigin := http.NewCrossOriginProtection() // other sites cannot sign people in or out
	mux := http.NewServeMux()
	mux.Handle("/v2/", h.api)
	mux.Handle("GET /v2/openapi.json", h.api.OpenAPIHandler())
	mux.Handle("GET /v2/teams", h.api.Auth.Require(teamsRead, http.HandlerFunc(h.listTeams)))
	mux.Handle("POST /v2/teams", h.api.Auth.Require(teamsWrite, http.HandlerFunc(h.createTeam)))
	mux.Handle("/settings/", settings)
	mux.HandleFunc("GET /sign-in", h.askPassword)
	mux.Handle("POST /sign-in", sameOrigin.Handler(http.HandlerFunc(h.signIn)))
	mux.Handle("POST /sign-out", sameOrigin.Handler(http.HandlerFunc(h.signOut)))
	mux.Handle("GET /{$}", http.RedirectHandler("/settings/", http.StatusSeeOther))
	return accessLog(mux), nil
}

// accessLog logs each API request with its key. auth.Track records the result of the guard inside
// next. For a refused request the log says more than the response, for example that the key has
// expired.
func accessLog(next http.Handler) http.Handler {
	return auth.Track(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		next.ServeHTTP(w, r)
		if a, ok := auth.Tracked(r.Context()); ok {
			log.Printf("host: %s %q key=%s account=%s %s %v", r.Method, r.URL.Path, a.KeyID, a.Account, a.Outcome, time.Since(begun).Round(time.Millisecond))
		}
	}))
}

func (h *host) listTeams(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"data": append([]teamCreated{}, h.teams...)})
}

// createTeam stores a team and publishes an event.
func (h *host) createTeam(w http.ResponseWriter, r *http.Request) {
	caller, _ := auth.PrincipalFrom(r.Context())
	team := teamCreated{TeamID: "team_" + rand.Text()}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&team); err != nil || team.Name == "" {
		auth.WriteInvalid(w, "name", "is required")
		return
	}
	// Publish stores the event durably. With store/postgres, PublishTx does so in the same
	// transaction as the team.
	if err := h.api.Webhooks.Publish(r.Context(), webhooks.Event{Account: caller.Account, Data: team}); err != nil {
		log.Print("host: ", err)
		auth.WriteInternal(w)
		return
	}
	h.mu.Lock()
	h.teams = append(h.teams, team)
	h.mu.Unlock()
	answer(w, http.StatusCreated, team)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

const cookieName = "session"

// accountOf returns the account whose settings pages a request may see.
func (h *host) accountOf(r *http.Request) (string, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().After(h.sessions[cookie.Value]) {
		return "", errors.New("the session has ended")
	}
	return account, nil
}

func (h *host) askPassword(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, `<!doctype html><html lang="en"><title>Sign in</title><form method="post"><label>Password <input type="password" name="password" autofocus></label> <button>Sign in</button></form>`)
}

func (h *host) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	given := sha256.Sum256([]byte(r.PostFormValue("password")))
	if subtle.ConstantTimeCompare(given[:], h.password[:]) != 1 {
		http.Error(w, "Wrong password.", http.StatusForbidden)
		return
	}
	value, until := rand.Text(), time.Now().Add(12*time.Hour)
	h.mu.Lock()
	h.sessions[value] = until
	h.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", Expires: until, HttpOnly: true, SameSite: http.SameSiteLaxMode}) // and Secure, behind TLS
	next := r.URL.Query().Get("next")
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		next = "/settings/" // next may come from another site
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (h *host) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		h.mu.Lock()
		delete(h.sessions, cookie.Value)
		h.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1})
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// operations returns the routes for operators. They have no authentication.
func (h *host) operations() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.metrics)
	mux.Handle("/", h.api.Operations(storageapi.HealthThresholds{}))
	return mux
}

// metrics answers in the text format of Prometheus. Alert on store_halted, and on a growing
// webhook_oldest_due_seconds.
func (h *host) metrics(w http.ResponseWriter, r *http.Request) {
	stats, err := h.api.Webhooks.Stats(r.Context())
	if err != nil {
		http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
		return
	}
	halted := 0
	if stats.Halted != nil {
		halted = 1
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintln(w, "webhook_deliveries_pending", stats.Pending)
	fmt.Fprintln(w, "webhook_oldest_due_seconds", stats.OldestDue.Seconds())
	fmt.Fprintln(w, "webhook_attempts_in_flight", stats.InFlight)
	fmt.Fprintln(w, "webhook_deliveries_dead_total", stats.Dead)
	fmt.Fprintf(w, "webhook_attempts_total{succeeded=\"false\"} %d\n", h.attempts[0].Load())
	fmt.Fprintf(w, "webhook_attempts_total{succeeded=\"true\"} %d\n", h.attempts[1].Load())
	fmt.Fprintln(w, "store_halted", halted)
	fmt.Fprintln(w, "store_file_bytes", stats.FileBytes)
	fmt.Fprintln(w, "store_file_free_bytes", stats.FreeBytes)
}
