// Package storageapi adds API keys and webhooks to a storage service written in Go. It issues
// keys with scopes, authenticates requests, lets clients register webhooks and delivers signed
// events to them. It runs in the host's process and stores everything in one file:
//
//	api, err := storageapi.NewHandler(storageapi.Config{Path: "storage.db"})
//	if err != nil {
//		return err
//	}
//	defer api.Close()
//	go api.Run(ctx) // delivers webhooks until ctx is done, then drains
//
//	mux := http.NewServeMux()
//	mux.Handle("/v2/", api)
//	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, listEnvironments))
//
// The host creates an account's first key in Go; First makes this safe to repeat at every start.
// The host also reports usage in Go, as often as it likes. The library decides which reports become
// events, and which webhooks receive them:
//
//	key, token, err := api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "bootstrap", Scopes: api.Keys.Scopes().All(), First: true})
//	err = api.Alerts.ReportBandwidth(ctx, "acct_1", usedBytes, limitBytes, "2026-11")
//
// # Contract
//
// A [Handler] serves these routes. Each requires a valid key in the Api-Key header, or, with
// [Config.Bearer], in the Authorization header.
//
//	POST   /v2/api-keys                        create a key
//	GET    /v2/api-keys                        list keys
//	GET    /v2/api-keys/self                   get the key of the request
//	DELETE /v2/api-keys/self                   revoke the value of the request
//	GET    /v2/api-keys/{id}                   get a key
//	PATCH  /v2/api-keys/{id}                   rename a key
//	DELETE /v2/api-keys/{id}                   delete a key
//	POST   /v2/api-keys/{id}/rotate            replace the value of a key
//	GET    /v2/api-keys/{id}/refusals          list refused requests of a key
//	POST   /v2/notifications/webhooks          create a webhook
//	GET    /v2/notifications/webhooks          list webhooks
//	GET    /v2/notifications/webhooks/{id}     get a webhook
//	PATCH  /v2/notifications/webhooks/{id}     change a webhook
//	DELETE /v2/notifications/webhooks/{id}     delete a webhook
//	GET    /v2/notifications/events            list the account's events
//	GET    /v2/notifications/events/{id}/body  get the body of an event
//	GET    /v2/audit-log                       list the audit log
//
// Routes under /v2/notifications/webhooks/{id}:
//
//	POST   rotate-secret                       replace the secret
//	POST   test                                send a test event
//	GET    deliveries                          list deliveries
//	GET    deliveries/{eventId}                get a delivery with its attempts
//	GET    deliveries/{eventId}/body           get the bytes that were sent
//	GET    deliveries/{eventId}/explanation    get why an event was delivered or not
//	POST   deliveries/{eventId}/redeliver      send an event again
//	POST   recoveries                          send the events of a time range again
//	GET    recoveries/{recoveryId}             get the progress of a recovery
//
// [Handler.OpenAPI] documents every status, header and limit. Package client is a Go client.
//
// Errors are {"error":{"code":…,"message":…}}; a 403 may have requiredScopes or requiredResources.
// Checks run in this order, and the first failure determines the response: the key (401), its rate
// (429), the route (404, 405), general authority (403), the media type (415), the size (413, above
// 64 KiB), syntax and values (400), authority over the specific key or webhook (403), the state
// (404, 409, 412). A request to change or delete a key or webhook that does not exist gets 404
// instead of the 403 for authority. Keys and webhooks of another account are answered like IDs that
// never existed.
//
// GET of a single key or webhook returns an ETag that covers every mutable field. A change or
// deletion with If-Match succeeds only if the tag still matches, checked atomically; otherwise
// the response is 412.
//
// A creation with an Idempotency-Key can be repeated for 24 hours. A repetition creates nothing
// and returns 200 with the original object, without its secret.
//
// The host may serve its own routes elsewhere under /v2. The Handler answers 404 at all other
// paths, and also for methods that the host's patterns do not match.
//
// # Mounting
//
// The Handler neither cleans paths nor redirects. [Config.Prefix] moves the whole API. See
// examples/routers for routers other than [http.ServeMux], and for CORS.
//
// # Shutdown
//
// On SIGTERM or an interrupt, cancel the context of [Handler.Run], shut down the HTTP server,
// then call [Handler.Close]. Requests and delivery attempts in flight finish.
package storageapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// Config configures a [Handler]. Only Path or Store is required.
type Config struct {
	// Path is the file that stores everything. It is created if it does not exist; its
	// directory must exist. Only one process at a time can use it.
	Path string

	// Store is used instead of the file at Path. It is another backend, or a bolt file opened with
	// options, such as bolt.Wait for a host that starts before its predecessor has exited, or
	// bolt.Sealed to encrypt signing secrets. The caller closes it after the Handler.
	Store store.Store

	// Prefix replaces /v2 at the start of the API's paths: with "/api/v1", POST /api/v1/api-keys
	// creates a key, and with "/", POST /api-keys does. It begins with a slash and, except for "/",
	// does not end with one. Mount the Handler at this path. Leave out any part that a router or
	// proxy strips from the path; behind [http.StripPrefix] the Location header contains that part
	// again. Default: "/v2".
	Prefix string

	// Scopes declares the host's own scopes, in addition to the scopes in section 5 of
	// docs/spec.md. Keys, routes, pages and the OpenAPI document treat both kinds alike. Their
	// order only affects display. If a scope is no longer declared, keys keep it without effect,
	// but only a key that also has it can manage them. At most 115. Default: none.
	Scopes []scopes.Declaration

	// HideScopes are scopes in section 5 of docs/spec.md that this service does not offer, for
	// example because it has no files. No page, error or OpenAPI document lists them, and no new
	// key can have them. A key that already has a hidden scope keeps it. Webhooks cannot subscribe
	// to event types that require a hidden scope. account:read cannot be hidden. To hide only event
	// types, see Alerts.HideEvents. Default: none.
	HideScopes []scopes.Scope

	// Keys configures the key service. The zero value works; its Logger defaults to Config.Logger.
	Keys apikeys.Config

	// Webhooks configures webhooks and their delivery. The zero value works; its Logger defaults
	// to Config.Logger.
	Webhooks webhooks.Config

	// Alerts configures the events that the library derives from reports. The zero value works; its
	// Logger defaults to Config.Logger, and its Now to Webhooks.Now.
	Alerts alerts.Config

	// RateLimit limits the requests per key and per account, counting requests to the Handler and
	// to the routes guarded by its Auth. It uses the clock Keys.Now. Default: no limit.
	RateLimit auth.RateLimit

	// Bearer also accepts keys as Authorization: Bearer <key>, for clients that cannot set other
	// headers. A request with both headers is answered 401. Default: only the Api-Key header.
	Bearer bool

	// Realm is the realm in the WWW-Authenticate header of 401 and 403 responses, such as the name
	// of the service: at most 64 visible ASCII characters and spaces, no quotes and backslashes.
	// Default: "storageapi".
	Realm string

	// Authorize decides what a key may do with other keys and with webhooks.
	// Default: [auth.LeastPrivilege].
	Authorize auth.Authorize

	// Notify receives every audit entry, with its actor: a key was created or is about to expire, a
	// webhook fails or was disabled, and so on; see [audit.Action]. Unlike Observe, it misses
	// nothing. From the first start with Notify on, the store keeps each entry pending until Notify
	// returns nil, even while no process runs. [Handler.Run] calls it as [audit.Config.Notify]
	// describes. All processes that share a store must set it. Default: none. The audit log keeps
	// the entries in any case.
	Notify func(ctx context.Context, entry audit.Entry) error

	// Observe receives the activity of this process, for metrics and traces: requests
	// authenticated, keys and webhooks changed, events published, deliveries claimed, attempted
	// and recorded, and commits of the file at Path. Pass bolt.Observe to a Store for its commits.
	// Observers must be fast and, unlike Notify, may miss some activity. Default: none, at no cost.
	Observe observe.Observer

	// LogRefusals logs to Logger how many 401 responses were sent, and why. Once a minute it logs
	// one line per client address that received 401 responses; addresses beyond 256 share one line.
	// The audit log does not contain 401 responses. Default: false.
	LogRefusals bool

	// ClientAddress returns the address of the client that sent a request, for the networks of keys,
	// the audit log and LogRefusals. A request without a valid address is refused if its key is
	// limited to networks. Set it behind proxies, and read only a header that your own last proxy sets:
	// clients can forge any other. A result that is not 1 to 64 visible ASCII characters is
	// ignored. Default: the host in RemoteAddr.
	ClientAddress func(*http.Request) string

	// RequestID returns the ID that the host assigned to a request, for the audit log. A result
	// that is not 1 to 64 visible ASCII characters is ignored. Default: none.
	RequestID func(*http.Request) string

	// Logger receives errors and warnings, never a secret. Default: [slog.Default].
	Logger *slog.Logger
}

// A Handler serves the API. The host may use its fields but must not change them.
// A Handler is safe for concurrent use.
type Handler struct {
	Keys     *apikeys.KeyService
	Webhooks *webhooks.WebhookService
	Alerts   *alerts.AlertService
	Audit    *audit.Service      // the audit log of keys and webhooks
	Auth     *auth.Authenticator // guards the host's own routes

	api       http.Handler
	http      httpapi.Config // the configuration of api
	attribute func(*http.Request, audit.Actor) context.Context
	store     store.Store
	notify    bool         // whether Config.Notify is set
	prefix    string       // Config.Prefix; empty for "/"
	ids       id.Generator // for audit entries
	document  []byte       // see [Handler.OpenAPI]
	ownsStore io.Closer    // nil if the host owns the store

	closeOnce func() error
	closing   context.Context // done once Close has begun
	closedAt  atomic.Pointer[time.Time]
	endRuns   context.CancelFunc
	mu        sync.Mutex // orders runs.Add before runs.Wait
	runs      sync.WaitGroup
}

// ErrClosed is returned by [Handler.Run] after [Handler.Close].
var ErrClosed = errors.New("storageapi: Handler is closed")

// NewHandler returns a Handler that is ready to serve. It starts no background work: see
// [Handler.Run]. An error names the invalid Config field or says why the file cannot be opened.
func NewHandler(config Config) (*Handler, error) {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Keys.Logger == nil {
		config.Keys.Logger = config.Logger
	}
	if config.Webhooks.Logger == nil {
		config.Webhooks.Logger = config.Logger
	}
	if config.Alerts.Logger == nil {
		config.Alerts.Logger = config.Logger
	}
	if config.Alerts.Now == nil {
		config.Alerts.Now = config.Webhooks.Now
	}
	switch {
	case config.Path == "" && config.Store == nil:
		return nil, errors.New("storageapi: Config: Path or Store is required")
	case config.Path != "" && config.Store != nil:
		return nil, errors.New("storageapi: Config: Path and Store must not both be set")
	case config.Store != nil:
		return newHandler(config, nil)
	}
	var options []bolt.Option
	if config.Observe.Committed != nil {
		options = append(options, bolt.Observe(config.Observe, config.Logger))
	}
	file, err := bolt.Open(config.Path, options...)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Path: %w", err)
	}
	config.Store = file
	h, err := newHandler(config, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return h, nil
}

// newHandler builds a Handler that uses config.Store.
func newHandler(config Config, ownsStore io.Closer) (*Handler, error) {
	vocabulary, err := scopes.NewVocabulary(config.Scopes...)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Scopes: %w", err)
	}
	if len(config.HideScopes) > 0 {
		if vocabulary, err = vocabulary.Hide(config.HideScopes...); err != nil {
			return nil, fmt.Errorf("storageapi: Config.HideScopes: %w", err)
		}
	}
	options := []driver.Option{driver.WithScopes(vocabulary)}
	if config.Notify != nil {
		options = append(options, driver.WithNotify())
	}
	config.Keys.Observe = observe.Join(config.Observe, config.Keys.Observe)
	config.Webhooks.Observe = observe.Join(config.Observe, config.Webhooks.Observe)
	keys, err := apikeys.New(config.Store, config.Keys, options...)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Keys: %w", err)
	}
	hooksConfig := config.Webhooks
	hooksConfig.Events = nil
	for _, d := range alerts.Events() {
		switch {
		case slices.Contains(config.Alerts.HideEvents, d.Type):
		case slices.Contains(config.HideScopes, d.Scope):
			config.Alerts.HideEvents = append(slices.Clip(config.Alerts.HideEvents), d.Type)
		default:
			hooksConfig.Events = append(hooksConfig.Events, d)
		}
	}
	hooksConfig.Events = append(hooksConfig.Events, config.Webhooks.Events...)
	hooks, err := webhooks.New(config.Store, hooksConfig, options...)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Webhooks: %w", err)
	}
	reports, err := alerts.New(config.Store, hooks, config.Alerts)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Alerts: %w", err)
	}
	auditLog, err := audit.New(config.Store, audit.Config{
		Notify: config.Notify, Logger: config.Logger,
		Scan: func(ctx context.Context) error { return keys.AddExpiring(ctx, config.Store.AddAuditEntries) },
	})
	if err != nil {
		return nil, fmt.Errorf("storageapi: %w", err)
	}
	authenticator, err := auth.New(keys, auth.Config{
		RateLimit: config.RateLimit, Scopes: vocabulary, Bearer: config.Bearer, Realm: config.Realm, Observe: config.Observe,
		LogRefusals: config.LogRefusals, ClientAddress: config.ClientAddress, Logger: config.Logger, Now: config.Keys.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("storageapi: %w", err)
	}
	prefix, err := httpapi.ParsePrefix(config.Prefix)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Prefix %w", err)
	}
	httpConfig := httpapi.Config{
		Prefix:    prefix,
		Keys:      keys,
		Webhooks:  hooks,
		Alerts:    reports,
		Auth:      authenticator,
		Authorize: config.Authorize,
		Logger:    config.Logger,
		Audit:     auditLog,
		Attribute: config.attribute,
	}
	api, err := httpapi.New(httpConfig)
	if err != nil {
		return nil, fmt.Errorf("storageapi: %w", err)
	}
	h := &Handler{Keys: keys, Webhooks: hooks, Alerts: reports, Audit: auditLog, attribute: config.attribute, Auth: authenticator, api: api, http: httpConfig, store: config.Store, notify: config.Notify != nil, prefix: prefix, document: newHostDocument(&config, prefix, vocabulary.All()), ownsStore: ownsStore}
	h.closing, h.endRuns = context.WithCancel(context.Background())
	h.closeOnce = sync.OnceValue(h.close)
	return h, nil
}

// Prefix returns the start of the API's paths, such as "/v2". It is [Config.Prefix], but "" for
// "/".
func (h *Handler) Prefix() string { return h.prefix }

// ServeHTTP answers any request as the API, whatever its path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.api.ServeHTTP(w, r) }

// Run delivers webhooks and scans the files of Config.Alerts until ctx is done or the Handler is
// closed. It then waits up to Config.Webhooks.Outbound.DrainTimeout for the attempts in flight and
// returns nil; the remaining deliveries stay pending for the next Run. It returns [ErrClosed] if
// the Handler is already closed, and [webhooks.ErrRunning] if another Run is running.
func (h *Handler) Run(ctx context.Context) error {
	h.mu.Lock()
	if h.closing.Err() != nil {
		h.mu.Unlock()
		return ErrClosed
	}
	h.runs.Add(1)
	h.mu.Unlock()
	defer h.runs.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.closing, cancel)()
	var others sync.WaitGroup
	others.Go(func() { h.Audit.Run(ctx) })
	others.Go(func() { h.Alerts.Run(ctx) })
	err := h.Webhooks.Run(ctx)
	cancel()
	others.Wait()
	return err
}

// Close ends Run and running test events, waits until they have drained, writes the pending
// last-used times of keys, and closes the store if the Handler opened it. Only the first call does
// this; every call waits for it and returns the same result. Shut down the HTTP server first,
// because requests after Close get 500.
func (h *Handler) Close() error { return h.closeOnce() }

func (h *Handler) close() error {
	now := time.Now()
	h.closedAt.Store(&now)
	h.mu.Lock()
	h.endRuns()
	h.mu.Unlock()
	var tests sync.WaitGroup
	tests.Go(h.Webhooks.Close)
	h.runs.Wait()
	tests.Wait()
	h.Keys.Close()
	h.Auth.Close()
	if h.ownsStore == nil {
		return nil
	}
	if err := h.ownsStore.Close(); err != nil {
		return fmt.Errorf("storageapi: %w", err)
	}
	return nil
}
