package webhooks_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const account = "acct_1"

const anyURL = "https://example.com/hooks"

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// loopback allows deliveries to this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// lowBalance is a sample payload, and onBalance the types to subscribe to for it.
var (
	lowBalance = alerts.BalanceLow{Balance: 9_500_000_000, Threshold: 10_000_000_000}
	onBalance  = []webhooks.EventType{alerts.TypeBalanceLow}
)

func newService(tb testing.TB, store driver.WebhookStore, config webhooks.Config, options ...driver.Option) *webhooks.WebhookService {
	tb.Helper()
	config.Events = slices.Concat(alerts.Events(), config.Events)
	service, err := webhooks.New(store, config, options...)
	if err != nil {
		tb.Fatal(err)
	}
	return service
}

// newClocked returns a service with a memory store and a clock that is stopped at noon.
func newClocked(tb testing.TB) *webhooks.WebhookService {
	tb.Helper()
	return newService(tb, memory.New(), webhooks.Config{Now: testclock.At(noon).Now})
}

// subscribe creates a webhook for balance.low events.
func subscribe(tb testing.TB, s *webhooks.WebhookService, url string) webhooks.Webhook {
	tb.Helper()
	webhook, err := s.Create(tb.Context(), account, webhooks.CreateParams{URL: url, Events: onBalance})
	if err != nil {
		tb.Fatal(err)
	}
	return webhook
}

// publish publishes a balance.low event and returns its ID.
func publish(tb testing.TB, s *webhooks.WebhookService) string {
	tb.Helper()
	id := s.NewEventID()
	if err := s.Publish(tb.Context(), webhooks.Event{ID: id, Account: account, Data: lowBalance}); err != nil {
		tb.Fatal(err)
	}
	return id
}

// deliveries returns the deliveries of an event.
func deliveries(tb testing.TB, s *webhooks.WebhookService, id string) []webhooks.Delivery {
	tb.Helper()
	list, err := s.EventDeliveries(tb.Context(), account, id)
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// delivery returns the one delivery of an event.
func delivery(tb testing.TB, s *webhooks.WebhookService, id string) webhooks.Delivery {
	tb.Helper()
	list := deliveries(tb, s, id)
	if len(list) != 1 {
		tb.Fatalf("%d deliveries of %s, want 1: %v", len(list), id, list)
	}
	return list[0]
}

// wantInvalid fails the test unless err is a ValidationError for the field, with a text short
// enough to be shown.
func wantInvalid(tb testing.TB, err error, field string) {
	tb.Helper()
	var invalid *apierr.ValidationError
	if !errors.As(err, &invalid) || invalid.Field != field || invalid.Reason == "" {
		tb.Errorf("got %v, want a ValidationError for %s", err, field)
	} else if len(err.Error()) > 1000 {
		tb.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// start runs the service until the returned function is called or the test ends.
func start(tb testing.TB, s *webhooks.WebhookService) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
