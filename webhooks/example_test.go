package webhooks_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A host delivers an event to a receiver that verifies its signature.
func Example() {
	// The receiver runs on this machine, with a separate certificate.
	var verify http.Handler
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { verify.ServeHTTP(w, r) }))
	defer receiver.Close()
	roots := x509.NewCertPool()
	roots.AddCert(receiver.Certificate())

	// The host allows deliveries to this machine, for this example only.
	hooks, err := webhooks.New(memory.New(), webhooks.Config{
		Events: alerts.Events(),
		Outbound: webhooks.Outbound{
			AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			RootCAs:       roots,
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- hooks.Run(ctx) }()

	webhook, err := hooks.Create(ctx, "acct_1", webhooks.CreateParams{
		URL:    receiver.URL + "/hooks",
		Events: []webhooks.EventType{alerts.TypeBalanceLow},
	})
	if err != nil {
		panic(err)
	}

	// The receiver got the secret when the webhook was created.
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{webhook.Secret}})
	if err != nil {
		panic(err)
	}
	received := make(chan string, 1)
	verify = verifier.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
	}))

	err = hooks.Publish(ctx, webhooks.Event{
		ID:        "evt_1",
		Account:   "acct_1",
		Timestamp: noon,
		Data:      alerts.BalanceLow{Balance: 9_500_000_000, Threshold: 10_000_000_000},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(<-received)

	// Run finishes running attempts.
	cancel()
	fmt.Println(<-ended)
	deliveries, err := hooks.EventDeliveries(context.Background(), "acct_1", "evt_1")
	if err != nil {
		panic(err)
	}
	fmt.Println(deliveries[0].State, deliveries[0].Attempts[0].Status)

	// Output:
	// {"id":"evt_1","type":"balance.low","timestamp":"2026-11-20T12:00:00.000Z","data":{"balance":"9.5","threshold":"10"}}
	// <nil>
	// delivered 200
}

// Nil fields stay unchanged. The condition sees exactly the change that Update makes.
func ExampleWebhookService_Update() {
	hooks, err := webhooks.New(memory.New(), webhooks.Config{Events: alerts.Events()})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	webhook, err := hooks.Create(ctx, "acct_1", webhooks.CreateParams{
		URL:    "https://example.com/hooks",
		Events: []webhooks.EventType{alerts.TypeBalanceLow},
	})
	if err != nil {
		panic(err)
	}

	off := false
	webhook, err = hooks.Update(ctx, "acct_1", webhook.ID, webhooks.UpdateParams{Active: &off})
	fmt.Println(webhook.URL, webhook.Active, err)

	elsewhere := "https://example.org/hooks"
	_, err = hooks.Update(ctx, "acct_1", webhook.ID, webhooks.UpdateParams{
		URL: &elsewhere,
		If: func(before, _ webhooks.Webhook) error {
			if !before.Active {
				return errors.New("turn it on first")
			}
			return nil
		},
	})
	fmt.Println(err)

	rotated, err := hooks.RotateSecret(ctx, "acct_1", webhook.ID, webhooks.RotateParams{Grace: time.Hour})
	fmt.Println(rotated.PreviousSecret.Equal(webhook.Secret), err) // both secrets sign for an hour

	// Output:
	// https://example.com/hooks false <nil>
	// update webhook: turn it on first
	// true <nil>
}

// A program follows an account's events, oldest first, and later continues where it stopped.
func ExampleWebhookService_ListEvents() {
	ctx := context.Background()
	hooks, err := webhooks.New(memory.New(), webhooks.Config{Events: alerts.Events()})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()
	publish := func(id string) {
		if err := hooks.Publish(ctx, webhooks.Event{ID: id, Account: "acct_1", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			panic(err)
		}
	}
	query := webhooks.EventQuery{OldestFirst: true, From: time.Now().Add(-time.Hour), Limit: 2}
	follow := func() {
		for more := true; more; {
			page, err := hooks.ListEvents(ctx, "acct_1", query)
			if err != nil {
				panic(err)
			}
			for _, event := range page.Events {
				fmt.Println(event.ID)
			}
			query.After, more = page.Resume, page.Next != "" // store it together with the results
		}
	}
	for _, id := range []string{"c", "b", "a"} {
		publish(id)
	}
	follow()
	publish("0")
	follow()
	// Output:
	// c
	// b
	// a
	// 0
}

// A host whose network lets requests out only through a proxy.
func ExampleOutbound_proxy() {
	proxy, err := url.Parse("http://proxy.internal:3128") // or socks5://
	if err != nil {
		panic(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(proxy)
	transport.MaxIdleConns = 1000 // otherwise most deliveries need a TLS handshake
	transport.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
		if response.StatusCode == http.StatusProxyAuthRequired {
			return fmt.Errorf("%w: status %d", webhooks.ErrProxy, response.StatusCode)
		}
		return nil
	}
	hooks, err := webhooks.New(memory.New(), webhooks.Config{Outbound: webhooks.Outbound{Transport: transport}})
	if err != nil {
		panic(err)
	}
	fmt.Println(hooks.SignatureHeader())
	// Output: X-Service-Signature
}
