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

// A Kit is a handler under test with the receivers that it can reach. What goes wrong in
// the kit itself fails the test. Its methods may be called from any goroutine, except those
// that wait, [Kit.WaitIdle] and [Receiver.Next], which are for the test's own.
type Kit struct {
	// API is the handler.
	API *storageapi.Handler

	// Account is whose keys and webhooks the kit makes: "acct_1", see also [Kit.For].
	Account string

	t        testing.TB
	network  *network
	header   string // of the service's signature
	patience time.Duration
}

// An Option is an option of [New].
type Option func(*options)

type options struct {
	config   storageapi.Config
	handler  *storageapi.Handler
	seed     uint64
	patience time.Duration
}

// Config makes the kit's handler of this configuration, for tests of a host that has one of
// its own. Its Store is a new one in memory if it has neither Path nor Store, and its Logger
// writes to the test's output unless it is set. A Store that is given stays the test's to
// close.
func Config(config storageapi.Config) Option { return func(o *options) { o.config = config } }

// Handler makes the kit use a handler that the host under test has made, and that was not
// used yet. It stays the host's to run and to close. The kit only becomes its network.
func Handler(handler *storageapi.Handler) Option { return func(o *options) { o.handler = handler } }

// Seed sets what jitter and ids come from. Default: 0, which is a seed like any other. A
// test that is to hold for any jitter tries some seeds.
func Seed(seed uint64) Option { return func(o *options) { o.seed = seed } }

// Patience sets for how long [Receiver.Next] and [Kit.WaitIdle] wait before they fail the
// test. Default: 10 seconds, and in a bubble 7 days, which is longer than the default
// schedule of retries. A host with a longer schedule needs more.
func Patience(d time.Duration) Option { return func(o *options) { o.patience = d } }

// New returns a kit whose handler delivers to the kit's receivers until the test ends. Then
// it is closed, after what the test's own Cleanup functions do. New panics in a program that
// is not a test.
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
	k := &Kit{API: o.handler, Account: "acct_1", t: t, network: newNetwork(virtual), patience: o.patience}
	if k.API == nil {
		k.API = newHandler(t, o.config)
	}
	testhook.DialThrough(k.API.Webhooks, k.network.dial, true)
	testhook.Seed(k.API.Webhooks, o.seed)
	k.header = k.API.Webhooks.SignatureHeader()
	t.Cleanup(k.network.close)
	if o.handler == nil {
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
		k.network.close() // so that nothing under way waits for a receiver
		if err := k.API.Close(); err != nil {
			k.t.Errorf("storageapitest: close the handler: %v", err)
		}
		if err := <-ended; err != nil && err != storageapi.ErrClosed {
			k.t.Errorf("storageapitest: run the handler: %v", err)
		}
	})
}

// For returns the same kit for another account, to test that accounts are kept apart.
func (k *Kit) For(account string) *Kit {
	other := *k
	other.Account = account
	return &other
}

// Subscribe makes a webhook of the kit's account, for these events, or for all that can be
// subscribed to, the host's own included, if there are none, and returns its receiver, which has its secret.
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

// Receiver returns a receiver without a webhook, for code under test that makes one by
// itself, of [Receiver.URL]. It trusts no secret yet, so that it refuses all: see
// [Receiver.Trust]. The host is a name, such as "hooks.customer.example"; "" is a new one.
func (k *Kit) Receiver(host string) *Receiver {
	k.t.Helper()
	r, err := k.network.add(host)
	if err != nil {
		k.t.Fatalf("storageapitest: %v", err)
	}
	r.kit = k
	return r
}

// Key makes a key of the kit's account with these scopes, which never expires.
func (k *Kit) Key(granted ...scopes.Scope) *Key {
	k.t.Helper()
	key, token, err := k.API.Keys.Create(k.t.Context(), k.Account, apikeys.CreateParams{Name: "test", Scopes: scopes.Of(granted...)})
	if err != nil {
		k.t.Fatalf("storageapitest: create a key: %v", err)
	}
	return &Key{Key: key, Value: token.Reveal(), t: k.t}
}

// Revoke deletes a key of the kit's.
func (k *Kit) Revoke(key *Key) {
	k.t.Helper()
	if err := k.API.Keys.Delete(k.t.Context(), key.Account, key.ID, apikeys.DeleteParams{}); err != nil {
		k.t.Fatalf("storageapitest: revoke a key: %v", err)
	}
}

// WaitIdle waits until nothing is pending for the webhooks of the kit's account that are
// on: each delivery has arrived, or was given up. It fails the test if that takes longer
// than [Patience].
func (k *Kit) WaitIdle() {
	k.t.Helper()
	pending := ""
	if !k.network.wait(k.patience, func() bool { pending = k.pending(); return pending == "" }) {
		k.t.Fatalf("storageapitest: after %v there still are %s", k.patience, pending)
	}
}

// pending says what is pending; empty if nothing is.
func (k *Kit) pending() string {
	k.t.Helper()
	ctx := context.WithoutCancel(k.t.Context()) // Cleanup functions may wait, too
	for webhook, err := range k.API.Webhooks.All(ctx, k.Account) {
		if err != nil {
			k.t.Fatalf("storageapitest: list webhooks: %v", err)
		}
		if !webhook.Claimable() {
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
