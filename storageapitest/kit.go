package storageapitest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A Kit is a handler under test with the receivers that it can reach. Errors in the kit
// itself fail the test. Its methods may be called from any goroutine, except [Kit.WaitIdle]
// and [Receiver.Next], which must be called from the test's goroutine.
type Kit struct {
	// API is the handler.
	API *storageapi.Handler

	// Account owns the keys and webhooks that the kit creates: "acct_1". See [Kit.For].
	Account string

	t        testing.TB
	network  *network
	header   string // name of the service's signature header
	patience time.Duration
}

// An Option is an option of [New].
type Option func(*options)

type options struct {
	config   storageapi.Config
	handlers []*storageapi.Handler
	seed     uint64
	patience time.Duration
}

// Config sets the configuration of the kit's handler. Without Path and Store the kit uses a new
// in-memory store; without Logger it logs to the test's output. A test that passes a Store must
// close it.
func Config(config storageapi.Config) Option { return func(o *options) { o.config = config } }

// Handler makes the kit use a handler created by the host under test, which must not have
// been used yet. The host runs and closes it. The kit only replaces its network. Repeat the
// option for further nodes on the same store; [Kit.API] is the first handler.
func Handler(handler *storageapi.Handler) Option {
	return func(o *options) { o.handlers = append(o.handlers, handler) }
}

// Seed sets the seed of jitter and IDs. Default: 0, which is not special. A test that must
// hold for any jitter should try several seeds.
func Seed(seed uint64) Option { return func(o *options) { o.seed = seed } }

// Patience sets how long [Receiver.Next] and [Kit.WaitIdle] wait before they fail the test.
// Default: 10 seconds, or 7 days in a bubble, which exceeds the default retry schedule. A
// host with a longer schedule needs more.
func Patience(d time.Duration) Option { return func(o *options) { o.patience = d } }

// New returns a kit whose handler delivers to the kit's receivers until the test ends. The
// handler is closed after the test's own Cleanup functions. New panics in a program that is
// not a test.
func New(t testing.TB, opts ...Option) *Kit {
	if !testing.Testing() {
		panic("storageapitest: this program is not a test")
	}
	t.Helper()
	virtual := inBubble()
	o := options{patience: 10 * time.Second}
	if virtual {
		o.patience = 7 * 24 * time.Hour
	}
	for _, option := range opts {
		option(&o)
	}
	own := len(o.handlers) == 0
	if own {
		o.handlers = append(o.handlers, newHandler(t, o.config))
	}
	k := &Kit{API: o.handlers[0], Account: "acct_1", t: t, network: newNetwork(virtual), patience: o.patience}
	for i, handler := range o.handlers {
		testhook.SetNetwork(handler.Webhooks, testhook.Network{Dial: k.network.dial})
		testhook.Seed(handler.Webhooks, o.seed+uint64(i)) // nodes must not make the same IDs
	}
	k.header = k.API.Webhooks.SignatureHeader()
	t.Cleanup(k.network.close)
	if own {
		k.run()
	}
	return k
}

func newHandler(t testing.TB, config storageapi.Config) *storageapi.Handler {
	t.Helper()
	if config.Path == "" && config.Store == nil {
		config.Store = memory.New()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	handler, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatalf("storageapitest: %v", err)
	}
	return handler
}

// run runs the handler until the test ends.
func (k *Kit) run() {
	ended := make(chan error, 1)
	go func() { ended <- k.API.Run(context.Background()) }()
	k.t.Cleanup(func() {
		k.network.close() // so that no attempt in flight waits for a receiver
		if err := k.API.Close(); err != nil {
			k.t.Errorf("storageapitest: close the handler: %v", err)
		}
		if err := <-ended; err != nil && err != storageapi.ErrClosed {
			k.t.Errorf("storageapitest: run the handler: %v", err)
		}
	})
}

// For returns the same kit for another account, to test the isolation of accounts.
func (k *Kit) For(account string) *Kit {
	other := *k
	other.Account = account
	return &other
}

// Subscribe creates a webhook for the given event types, or for all types, including the host's
// own, if none are given. It returns the webhook's receiver, which has its secret.
func (k *Kit) Subscribe(events ...webhooks.EventType) *Receiver {
	k.t.Helper()
	if len(events) == 0 {
		events = k.API.Webhooks.EventTypes()
	}
	r := k.Receiver("")
	webhook, err := k.API.Webhooks.Create(k.t.Context(), k.Account, webhooks.CreateParams{URL: r.URL, Events: events})
	if err != nil {
		k.t.Fatalf("storageapitest: subscribe: %v", err)
	}
	r.Webhook = webhook
	r.Trust(webhook.Secret)
	return r
}

// Receiver returns a receiver without a webhook, for code under test that creates a webhook
// with [Receiver.URL]. It refuses all requests until [Receiver.Trust] sets a secret. host is a
// name, such as "hooks.customer.example"; "" means a new name.
func (k *Kit) Receiver(host string) *Receiver {
	k.t.Helper()
	r, err := k.network.add(host)
	if err != nil {
		k.t.Fatalf("storageapitest: %v", err)
	}
	r.kit = k
	return r
}

// Key creates a key with these scopes, which never expires.
func (k *Kit) Key(granted ...scopes.Scope) *Key {
	k.t.Helper()
	key, token, err := k.API.Keys.Create(k.t.Context(), k.Account, apikeys.CreateParams{Name: "test", Scopes: scopes.Of(granted...)})
	if err != nil {
		k.t.Fatalf("storageapitest: create a key: %v", err)
	}
	return &Key{Key: key, Value: token.Reveal()}
}

// Revoke deletes a key.
func (k *Kit) Revoke(key *Key) {
	k.t.Helper()
	if err := k.API.Keys.Delete(k.t.Context(), key.Account, key.ID, apikeys.DeleteParams{}); err != nil {
		k.t.Fatalf("storageapitest: revoke a key: %v", err)
	}
}

// WaitIdle waits until no deliveries are pending for the account's webhooks. It ignores
// webhooks that are disabled or on hold. It fails the test if this takes longer than
// [Patience].
func (k *Kit) WaitIdle() {
	k.t.Helper()
	pending := ""
	if !k.network.wait(k.patience, func() bool { pending = k.pending(); return pending == "" }) {
		k.t.Fatalf("storageapitest: still %[2]s after %[1]v", k.patience, pending)
	}
}

// pending returns a text that describes the pending deliveries, or "" if there are none.
func (k *Kit) pending() string {
	k.t.Helper()
	ctx := context.WithoutCancel(k.t.Context()) // Cleanup functions may call WaitIdle
	for webhook, err := range k.API.Webhooks.All(ctx, k.Account, webhooks.WebhookQuery{}) {
		if err != nil {
			k.t.Fatalf("storageapitest: list webhooks: %v", err)
		}
		if !webhook.Claimable() || !webhook.PausedUntil.IsZero() {
			continue
		}
		stats, err := k.API.Webhooks.WebhookStats(ctx, k.Account, webhook.ID)
		if err != nil {
			k.t.Fatalf("storageapitest: get the stats of a webhook: %v", err)
		}
		if stats.Pending > 0 {
			return fmt.Sprintf("%d deliveries pending for %s", stats.Pending, webhook.URL)
		}
	}
	return ""
}
