// Package storageapi gives a storage service written in Go the part of its HTTP
// API that issues API keys with scopes, authenticates every request with them,
// lets clients register webhooks, and delivers signed events to those: in the
// host's own process, with one file on disk:
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
// The first key of an account is made in Go, once, however often the host starts. What makes events is told in Go, too, as
// often as the host likes; who is to hear of it, and when, the library decides:
//
//	key, token, err := api.Keys.Create(ctx, "acct_1", apikeys.CreateParams{Name: "bootstrap", Scopes: scopes.All(), First: true})
//	err = api.Webhooks.ReportBandwidth(ctx, "acct_1", usedBytes, limitBytes, "2026-11")
//
// # Contract
//
// A [Handler] serves these routes; every one of them takes a live key in the
// Api-Key header.
//
//	POST   /v2/api-keys                        create a key
//	GET    /v2/api-keys                        list keys
//	GET    /v2/api-keys/self                   get the key of the request
//	GET    /v2/api-keys/{id}                   get a key
//	PATCH  /v2/api-keys/{id}                   rename a key
//	DELETE /v2/api-keys/{id}                   delete a key
//	POST   /v2/api-keys/{id}/rotate            give a key a new value
//	POST   /v2/notifications/webhooks          create a webhook
//	GET    /v2/notifications/webhooks          list webhooks
//	GET    /v2/notifications/webhooks/{id}     get a webhook
//	PATCH  /v2/notifications/webhooks/{id}     change a webhook
//	DELETE /v2/notifications/webhooks/{id}     delete a webhook
//	GET    /v2/notifications/events            list the account's events
//	GET    /v2/notifications/events/{id}/body  get the body of one
//	GET    /v2/audit-log                    list what happened to both
//
// And under /v2/notifications/webhooks/{id}:
//
//	POST   rotate-secret                       give it a new secret
//	POST   test                                send it a test event
//	GET    deliveries                          list its deliveries
//	GET    deliveries/{eventId}                get one, with its attempts
//	GET    deliveries/{eventId}/body           get the bytes that were sent
//	POST   deliveries/{eventId}/redeliver      send it again
//	POST   recoveries                          send a range of time again
//	GET    recoveries/{recoveryId}             tell how far that is
//
// [OpenAPI] has the whole of it: every status, header and limit. Programs that call
// the API get its errors from [DecodeError].
//
// Errors are {"error":{"code":…,"message":…}}. Checks come in one order, and the
// first that fails answers: the key (401), its rate (429), the route (404, 405), the authority in
// general (403), the media type (415), the size (413, above 64 KiB), syntax and
// values (400), the authority over the very key or webhook (403), the state (404,
// 409, 412). Where a key or webhook is changed or deleted, 404 comes before its 403:
// it must be found first. Of another account nothing can be seen or inferred: its keys and webhooks
// are answered like ids that never were.
//
// One key is answered with an ETag, which stands for all that requests can change of
// it. A change or deletion with If-Match is done only if the tag is still the same,
// in one step with finding that out; else it is answered 412.
//
// A creation with an Idempotency-Key can be sent again within 24 hours: it makes
// nothing more, and is answered 200 with what was made, without its secret.
//
// Everything else under /v2 is the host's to mount; the Handler answers 404 there,
// and so for a method that a host's pattern does not have.
//
// # Mounting
//
// Paths are taken as they are: nothing is cleaned or redirected. [Config.Prefix] puts the
// whole API elsewhere. Routers other than [http.ServeMux], and CORS for programs in browsers,
// are in examples/routers.
//
// # Ending
//
// At SIGTERM or an interrupt end the context of [Handler.Run], shut the HTTP server down,
// then call [Handler.Close]: requests under way finish, and so do attempts.
package storageapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/wiring"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

// Config configures a [Handler]. It needs a Path or a Store, and works with
// nothing else.
type Config struct {
	// Path is the file that everything is kept in; it is created if it does
	// not exist, its directory must. One process at a time can use it.
	Path string

	// Store keeps everything instead of a file that NewHandler opens: one of another backend, or a
	// file with options of its own, such as bolt.Wait for a host that starts before its
	// predecessor has ended, and bolt.Sealed to encrypt signing secrets. The caller closes it,
	// after the Handler.
	Store store.Store

	// Prefix is what the paths of the API begin with instead of /v2: with "/api/v1" keys are
	// created by POST /api/v1/api-keys, with "/" by POST /api-keys. Mount the Handler where
	// it is. It begins with a slash and does not end with one. Where a router or a proxy
	// takes a part of the path away, leave that part out; behind [http.StripPrefix] the
	// Location of what is created has it again. Default: "/v2".
	Prefix string

	// Scopes declares the host's own scopes, in addition to those of docs/spec.md, section 5: they
	// are granted, required, shown and documented like those. Their order is for people
	// only. A scope that is not declared any more stays in the keys that hold it: it grants
	// nothing, and a key without it cannot manage them. At most 115. Default: none.
	Scopes []scopes.Declaration

	// Keys configures the keys. Its zero value works; its Logger defaults to
	// the one below.
	Keys apikeys.Config

	// Webhooks configures webhooks and their delivery. Its zero value works;
	// its Logger defaults to the one below.
	Webhooks webhooks.Config

	// RateLimit limits the requests of each key, and of each account, to the Handler and
	// to the routes that its Auth guards. Its clock is Keys.Now. Default: no limit.
	RateLimit auth.RateLimit

	// Authorize decides what a key may do with other keys and with webhooks.
	// Default: [auth.LeastPrivilege].
	Authorize auth.Authorize

	// Notify is told what happens to keys and webhooks, and who did it: a key was created or
	// is about to expire, a webhook fails or was turned off, and more, see [audit.Action].
	// Unlike Observe it misses nothing: what happens from the first start with a Notify
	// on waits in the store until Notify has returned nil, also while no process is there.
	// [Handler.Run] calls it, see [audit.Config.Notify] for how. All processes that share a
	// store need it. Default: none; what happens is kept for the audit log all the same.
	Notify func(ctx context.Context, entry audit.Entry) error

	// Observe is told what this process does, for metrics and traces: requests authenticated,
	// keys and webhooks changed, events published, deliveries claimed, attempted and recorded,
	// commits of the file of Path; a Store is given its own, see bolt.Observe. It is fast and
	// may lose some, unlike Notify. Default: nothing is told, which costs nothing.
	Observe observe.Observer

	// LogRefusals logs how many requests were answered 401, and why, to the Logger: once a minute
	// one line for each source that had any. Of more than 256 sources the others share a line.
	// The audit log has none of them. Default: not logged.
	LogRefusals bool

	// ClientAddress returns the address of the client that sent a request, for the audit
	// trail and LogRefusals. Set it behind proxies, to what the last proxy of your own has put into a header:
	// what clients put there themselves says nothing. Of what it returns more than 64
	// characters, or others than visible ASCII ones, are left out. Default: the host of
	// RemoteAddr.
	ClientAddress func(*http.Request) string

	// RequestID returns the id that the host has given a request, for the audit log: 1 to
	// 64 visible ASCII characters. Default: none.
	RequestID func(*http.Request) string

	// Logger is told what goes wrong. It never gets a secret. Default:
	// [slog.Default].
	Logger *slog.Logger
}

// A Handler serves the API. Its fields are for the host to use and not to change;
// it is safe for concurrent use.
type Handler struct {
	Keys     *apikeys.KeyService
	Webhooks *webhooks.WebhookService
	Audit    *audit.Service      // what happened to both: the audit log
	Auth     *auth.Authenticator // guards the host's own routes

	api       http.Handler
	attribute func(*http.Request, audit.Actor) context.Context
	store     store.Store
	notify    bool         // Config.Notify is set
	ids       id.Generator // of audit entries
	document  []byte       // see [Handler.OpenAPI]
	ownsStore io.Closer    // nil if the store is the host's

	closeOnce func() error
	closing   context.Context // done once Close has begun
	closedAt  atomic.Pointer[time.Time]
	endRuns   context.CancelFunc
	mu        sync.Mutex // orders runs.Add before runs.Wait
	runs      sync.WaitGroup
}

// ErrClosed is returned by [Handler.Run] after [Handler.Close].
var ErrClosed = errors.New("storageapi: Handler is closed")

// NewHandler returns a Handler that is ready to serve. It starts nothing in the
// background: see [Handler.Run]. An error names the field of config that is wrong,
// or tells why the file cannot be opened.
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
	switch {
	case config.Path == "" && config.Store == nil:
		return nil, errors.New("storageapi: Config: Path or Store must be given")
	case config.Path != "" && config.Store != nil:
		return nil, errors.New("storageapi: Config: Path and Store must not both be given")
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

// newHandler puts a Handler together on config.Store.
func newHandler(config Config, ownsStore io.Closer) (*Handler, error) {
	vocabulary, err := scopes.NewVocabulary(config.Scopes...)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Scopes: %w", err)
	}
	wired := wiring.Settings{Scopes: vocabulary, Notify: config.Notify != nil}
	config.Keys.Observe = observe.Join(config.Observe, config.Keys.Observe)
	config.Webhooks.Observe = observe.Join(config.Observe, config.Webhooks.Observe)
	keys, err := apikeys.New(config.Store, config.Keys, wired)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Keys: %w", err)
	}
	hooks, err := webhooks.New(config.Store, config.Webhooks, wired)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Webhooks: %w", err)
	}
	auditLog, err := audit.New(config.Store, audit.Config{
		Notify: config.Notify, Logger: config.Logger,
		Scan: func(ctx context.Context) error { return keys.AddExpiring(ctx, config.Store.AddAuditEntries) },
	})
	if err != nil {
		return nil, fmt.Errorf("storageapi: %w", err)
	}
	authenticator, err := auth.New(keys, auth.Config{RateLimit: config.RateLimit, Scopes: vocabulary, Observe: config.Observe, LogRefusals: config.LogRefusals, ClientAddress: config.ClientAddress,
		Logger: config.Logger, Now: config.Keys.Now})
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.RateLimit: %w", err)
	}
	prefix, err := httpapi.ParsePrefix(config.Prefix)
	if err != nil {
		return nil, fmt.Errorf("storageapi: Config.Prefix %w", err)
	}
	api, err := httpapi.New(httpapi.Config{
		Prefix:    prefix,
		Keys:      keys,
		Webhooks:  hooks,
		Auth:      authenticator,
		Authorize: config.Authorize,
		Logger:    config.Logger,
		Audit:     auditLog,
		Attribute: config.attribute,
	})
	if err != nil {
		return nil, fmt.Errorf("storageapi: %w", err)
	}
	h := &Handler{Keys: keys, Webhooks: hooks, Audit: auditLog, attribute: config.attribute, Auth: authenticator, api: api, store: config.Store, notify: config.Notify != nil, document: newHostDocument(&config, prefix), ownsStore: ownsStore}
	h.closing, h.endRuns = context.WithCancel(context.Background())
	h.closeOnce = sync.OnceValue(h.close)
	return h, nil
}

// ServeHTTP answers a request to the API, at any path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.api.ServeHTTP(w, r) }

// Run delivers webhooks until ctx is done or the Handler is closed. Then it
// finishes the attempts under way, for no longer than Config.Webhooks.Outbound.DrainTimeout,
// and returns nil; what is left is delivered by the next Run. It returns
// [ErrClosed] if the Handler is closed already, and [webhooks.ErrRunning] if it is
// running already.
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
	told := make(chan struct{})
	go func() {
		defer close(told)
		h.Audit.Run(ctx)
	}()
	err := h.Webhooks.Run(ctx)
	cancel()
	<-told
	return err
}

// Close ends a Run in progress and test events, waits until they have drained, writes when keys
// were last used, and closes the store if the Handler opened it. It does so once:
// every call returns when that is done, with the same result. Requests that come
// later find the file closed and are answered 500, so shut the server down first.
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
