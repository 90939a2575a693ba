package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/hostcode"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
	"github.com/storageapi/storageapi/webhooks/internal/testgate"
)

// A WebhookService manages webhooks, publishes events and delivers them to webhooks. It is safe for
// concurrent use.
//
// Its methods return wrapped errors. Callers can branch on [apierr.ErrNotFound],
// [apierr.ErrLimit], [apierr.ErrIdempotencyMismatch] and [apierr.ErrCreatedThenDeleted]. A
// [*apierr.ValidationError] reports invalid input. Any other error is a failure.
type WebhookService struct {
	store      driver.WebhookStore
	guard      *outbound.Guard
	maxCount   int // maximum number of webhooks per account; negative: unlimited
	now        func() time.Time
	ids        id.Generator
	logger     *slog.Logger
	entries    *entryMaker
	events     *vocabulary
	trace      func(context.Context) string // nil means none
	dispatcher *dispatcher
	maintainer *maintainer
	tests      testgate.Gate
	running    atomic.Bool
	storeCheck storeCheck // for Health
	waits      waits
	onChange   []func(context.Context, Webhook)
}

// New returns a WebhookService that keeps its records in store. The caller closes the store after
// Run has returned. New starts nothing; call [WebhookService.Run]. If config is invalid, the error
// names the field.
func New(store driver.WebhookStore, config Config, options ...driver.Option) (*WebhookService, error) {
	shared := driver.Apply(options)
	if store == nil {
		return nil, errors.New("webhooks: nil Store")
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("webhooks: Config: %w", err)
	}
	events, err := newVocabulary(config.Events, shared.Scopes)
	if err != nil {
		return nil, fmt.Errorf("webhooks: Config: %w", err)
	}
	guard := outbound.NewGuard(config.Outbound.AllowNetworks, config.Outbound.AllowHosts)
	dispatcher := newDispatcher(store, newSender(guard, config), config, shared.Notify)
	s := &WebhookService{
		store:      store,
		guard:      guard,
		maxCount:   config.MaxPerAccount,
		now:        config.Now,
		logger:     config.Logger,
		events:     events,
		trace:      config.TraceContext,
		dispatcher: dispatcher,
		entries:    dispatcher.entries,
		storeCheck: storeCheck{store: store, scheduler: dispatcher.scheduler},
	}
	for _, warning := range store.Capabilities().Warnings {
		config.Logger.Warn("storageapi: the store may lose acknowledged commits", "warning", warning)
	}
	s.maintainer = newMaintainer(dispatcher)
	return s, nil
}

// ErrRunning is returned by [WebhookService.Run] if it is already running.
var ErrRunning = errors.New("webhooks: Run is already running")

// Run makes the deliveries that are due until ctx is done. Then it begins no new attempts, waits
// up to [Outbound.DrainTimeout] for running attempts, cancels the rest, returns their deliveries
// to the store, and returns nil. If a function of [Config.Observe] is still running a second
// later, Run logs that and returns without waiting for it. If Run is already running, it returns
// [ErrRunning] at once. It can be called again after it has returned.
func (s *WebhookService) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	s.logger.Info("storageapi: delivering webhooks; idle connections are kept to at most about max_idle_conns hosts", "max_idle_conns", max(s.dispatcher.config.Outbound.MaxIdleConns, 0))
	defer s.dispatcher.sender.client.CloseIdle() // also closes the connections of test events
	defer s.running.Store(false)
	s.dispatcher.activity.enter(RunWaiting)
	defer s.dispatcher.activity.enter(RunEnded)
	over, cancel := hostcode.Drained(ctx, s.dispatcher.config.Outbound.DrainTimeout)
	defer cancel()
	others := map[string]<-chan bool{"maintenance": hostcode.Go(func() { s.maintainer.run(ctx) })}
	// The store must keep reporting until all results are recorded; after that it may assign
	// deliveries to another process.
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReporting()
	others["Store.Deliver"] = hostcode.Go(func() { s.dispatcher.follow(reporting) })
	s.dispatcher.deliver(ctx)
	stopReporting()
	if over.Err() == nil {
		s.dispatcher.reporter.Drain(over)
	} else { // recording took longer; Close still waits for changes that were just reported
		s.dispatcher.reporter.Close()
	}
	for name, returned := range others {
		select {
		case <-returned:
			continue
		default:
		}
		select {
		case <-returned:
		case <-over.Done():
			s.logger.Error("storageapi: Run returned with a task still running", "task", name)
		}
	}
	return nil
}

// ErrClosed is returned by [WebhookService.SendTest] after [WebhookService.Close], or if Close
// cancels the test event.
var ErrClosed = errors.New("webhooks: the service is closed")

// Close prevents new test events, waits up to [Outbound.DrainTimeout] for running ones, and
// cancels the rest. It returns once no more test requests are sent and [Config.Observe] has
// received all changes, but it waits at most a second for the changes. It does not stop Run:
// cancel the context of Run for that.
func (s *WebhookService) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), max(s.dispatcher.config.Outbound.DrainTimeout, 0))
	defer cancel()
	s.tests.Close(ctx, hostcode.Grace)
	s.dispatcher.reporter.Close()
}

// Get returns the account's webhook with the given ID, or [apierr.ErrNotFound].
func (s *WebhookService) Get(ctx context.Context, account, webhookID string) (Webhook, error) {
	if !input.ID(webhookID) || input.Account(account) != nil { // both may come from a URL
		return Webhook{}, fmt.Errorf("get webhook: %w", apierr.ErrNotFound)
	}
	webhook, err := s.store.WebhookByID(ctx, account, webhookID)
	if err != nil {
		return Webhook{}, fmt.Errorf("get webhook: %w", err)
	}
	dropExpired(&webhook, s.now())
	return webhook, nil
}

// Publish sends an event to all webhooks of its account that are active and subscribed to its type
// when Publish is called. When it returns nil, the event and its deliveries are stored as durably
// as the store allows. Run then delivers each at least once, or ends it as dead. When Publish
// returns an error that is not a [*apierr.ValidationError], the event may or may not have been
// stored: publish it again under the same ID to be sure.
func (s *WebhookService) Publish(ctx context.Context, event Event) error {
	encoded, err := s.Encode(ctx, event)
	if err != nil {
		return err
	}
	observed := s.dispatcher.reporter.observer.Published != nil
	begun := began(observed)
	deliveries, err := s.store.Enqueue(ctx, encoded)
	s.waits.published(encoded.Account) // even after an error, since the event may be stored
	if observed {
		s.dispatcher.reporter.published(ctx, observe.Publication{
			Account: encoded.Account, Deliveries: deliveries, Duration: time.Since(begun), Err: err,
			Events: []observe.PublishedEvent{{ID: encoded.ID, Type: string(encoded.Type), Bytes: len(encoded.Body)}},
		})
	}
	s.dispatcher.halt.noteWrite(ctx, "publish", err)
	if err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	return nil
}

// Encode returns the event as Publish would store it, with defaults filled in, or the
// [*apierr.ValidationError] that Publish would return. It stores nothing. Use it with a store that
// can add events to the caller's transaction, and report the result to [WebhookService.Published].
func (s *WebhookService) Encode(ctx context.Context, event Event) (EncodedEvent, error) {
	if event.TraceContext == "" {
		event.TraceContext = s.traceContext(ctx)
	}
	now := s.now()
	if event.ID == "" {
		event.ID = s.ids.New(id.Event, now)
	}
	if event.Timestamp.IsZero() {
		event.Timestamp = now
	}
	return event.encode(s.events)
}

// Published reports to [Config.Observe], [WebhookService.Health] and [WebhookService.WaitEvents] that
// the caller has stored events returned by [WebhookService.Encode], or has failed to store them.
func (s *WebhookService) Published(ctx context.Context, p observe.Publication) {
	s.waits.published(p.Account)
	s.dispatcher.halt.noteWrite(ctx, "publish", p.Err)
	s.dispatcher.reporter.published(ctx, p)
}

// OnChange adds a function that is called after each creation and update of a webhook by this
// service, before Create or Update returns. Call OnChange before using the service. After a crash
// or a store error, the call may be missing.
func (s *WebhookService) OnChange(changed func(context.Context, Webhook)) {
	s.onChange = append(s.onChange, changed)
}

func (s *WebhookService) changed(ctx context.Context, webhook Webhook) {
	for _, changed := range s.onChange {
		changed(ctx, webhook)
	}
}

// NewEventID returns a new ID for an [Event], for hosts that need it before publishing.
func (s *WebhookService) NewEventID() string { return s.ids.New(id.Event, s.now()) }
