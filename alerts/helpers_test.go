package alerts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A teller is a store that records the published events and counts the writes of reports.
type teller struct {
	store.Store
	mu     sync.Mutex
	events []driver.AlertEvent
	writes int
	fail   error // error that updates return after they were made
}

func newTeller() *teller { return &teller{Store: memory.New()} }

func (s *teller) UpdateAlert(ctx context.Context, account, series string, change func(*driver.AlertStep) error) (int, error) {
	var events []driver.AlertEvent
	wrote := false
	deliveries, err := s.Store.UpdateAlert(ctx, account, series, func(step *driver.AlertStep) error {
		before := string(step.State)
		err := change(step)
		events, wrote = step.Events, step.Due || len(step.Events) > 0 || string(step.State) != before && !step.Deferrable
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && wrote {
		s.events = append(s.events, events...)
		s.writes++
	}
	if s.fail != nil {
		return 0, s.fail
	}
	return deliveries, err
}

func (s *teller) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []driver.DedupKey) (int, error) {
	deliveries, err := s.Store.EnqueueOnce(ctx, event, dedupKeys)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.events = append(s.events, driver.AlertEvent{EncodedEvent: event})
		s.writes++
	}
	if s.fail != nil {
		return 0, s.fail
	}
	return deliveries, err
}

// told returns the events since the last call, each as "balance.low wh_… {…}".
func (s *teller) told() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.events {
		var body struct{ Data json.RawMessage }
		if err := json.Unmarshal(event.Body, &body); err != nil {
			panic(err)
		}
		list = append(list, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", event.Type, event.WebhookID, body.Data)), " "))
	}
	s.events = nil
	return list
}

// wrote returns the number of updates since the last call that wrote something.
func (s *teller) wrote() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.writes
	s.writes = 0
	return n
}

// want checks the events since the last call.
func (s *teller) want(tb testing.TB, after string, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, s.told()); diff != "" {
		tb.Errorf("told after %s (-want +got):\n%s", after, diff)
	}
}

// sui returns an amount.
func sui(text string) alerts.Amount {
	amount, err := alerts.ParseAmount(text)
	if err != nil {
		panic(err)
	}
	return amount
}

// watch creates a webhook for balance.low with the threshold, or with none if threshold is empty.
func watch(tb testing.TB, s *service, threshold string) webhooks.Webhook {
	tb.Helper()
	params := webhooks.CreateParams{URL: "https://example.com/", Events: onBalance}
	if threshold != "" {
		params.Threshold = uint64(sui(threshold))
	}
	webhook, err := s.Create(tb.Context(), account, params)
	if err != nil {
		tb.Fatal(err)
	}
	return webhook
}

func unmarshal(data []byte, value any) {
	if err := json.Unmarshal(data, value); err != nil {
		panic(err)
	}
}

const account = "acct_1"

var (
	noon      = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	onBalance = []webhooks.EventType{alerts.TypeBalanceLow}
)

// A service is an AlertService with the WebhookService through which it publishes.
type service struct {
	*alerts.AlertService
	*webhooks.WebhookService
}

type testConfig struct {
	Alerts alerts.Config
	Logger *slog.Logger
	Now    func() time.Time
}

func newService(tb testing.TB, store store.Store, config testConfig) *service {
	tb.Helper()
	s, err := open(store, config)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func open(store store.Store, config testConfig) (*service, error) {
	config.Alerts.Logger, config.Alerts.Now = config.Logger, config.Now
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events(), Logger: config.Logger, Now: config.Now})
	if err != nil {
		return nil, err
	}
	reports, err := alerts.New(store, hooks, config.Alerts)
	return &service{reports, hooks}, err
}

// Run runs both services until ctx is done.
func (s *service) Run(ctx context.Context) error {
	var reports sync.WaitGroup
	reports.Go(func() { s.AlertService.Run(ctx) })
	defer reports.Wait()
	return s.WebhookService.Run(ctx)
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
func start(tb testing.TB, s *service) (stop func()) {
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
