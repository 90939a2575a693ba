package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks/internal/alerting"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// A WebhookService manages webhooks, publishes events to them and delivers
// those. It is safe for concurrent use.
//
// Its methods return errors wrapped: [ErrNotFound], [ErrLimit], [ErrIdempotencyMismatch] and
// [ErrCreatedThenDeleted] to branch on, a [*ValidationError] for input that breaks a rule, anything
// else is a failure.
type WebhookService struct {
	store      Store
	guard      *outbound.Guard
	maxCount   int // webhooks an account; negative: any number
	now        func() time.Time
	ids        id.Generator
	logger     *slog.Logger
	alerts     alerting.Policy
	dispatcher *dispatcher
	maintainer *maintainer
	tests      tests
	scanner    *scanner // nil without Config.Files
	running    atomic.Bool
}

// New returns a WebhookService on the given store, which stays the caller's to
// close, after Run has returned. It starts nothing: see [WebhookService.Run].
// The error names the field of config that makes no sense.
func New(store Store, config Config) (*WebhookService, error) {
	if store == nil {
		return nil, errors.New("webhooks: nil Store")
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("webhooks: Config: %w", err)
	}
	guard := outbound.NewGuard(config.AllowNetworks, config.AllowHosts)
	dispatcher := newDispatcher(store, newSender(guard, config), config)
	s := &WebhookService{
		store:      store,
		guard:      guard,
		maxCount:   config.MaxPerAccount,
		now:        config.Now,
		logger:     config.Logger,
		alerts:     config.alertPolicy(),
		dispatcher: dispatcher,
	}
	s.maintainer = newMaintainer(dispatcher, s.reevaluateDue)
	if config.Files != nil {
		s.scanner = newScanner(s, config)
	}
	return s, nil
}

// ErrRunning is returned by [WebhookService.Run] if it is running already.
var ErrRunning = errors.New("webhooks: Run is running already")

// Run delivers what is due until ctx is done. Then it starts nothing new, waits
// for the attempts under way up to [Config.DrainTimeout], cuts short what is
// left and gives it back to be delivered later, and returns nil. A hook or
// [Config.Files] that has not returned a second after that is logged and left behind. If
// it is running already it returns [ErrRunning] at once. It can be run again.
func (s *WebhookService) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.dispatcher.sender.client.CloseIdle() // those of test events, too
	defer s.running.Store(false)
	over, cancel := s.dispatcher.config.drained(ctx)
	defer cancel()
	s.dispatcher.reporter.caller.over = over
	others := map[string]<-chan bool{"maintenance": apart(func() { s.maintainer.run(ctx) })}
	if s.scanner != nil {
		others["Config.Files"] = apart(func() { s.scanner.run(ctx) })
	}
	if waker, ok := s.store.(Waker); ok {
		others["Store.Wake"] = apart(func() { waker.Wake(ctx, s.dispatcher.wake) })
	}
	s.dispatcher.deliver(ctx)
	for name, returned := range others {
		select {
		case <-returned:
			continue
		default:
		}
		select {
		case <-returned:
		case <-over.Done():
			s.logger.Error("storageapi: Run ends although something does not return", "what", name)
		}
	}
	return nil
}

// ErrClosed is returned by [WebhookService.SendTest] after [WebhookService.Close], and
// when that cuts it short.
var ErrClosed = errors.New("webhooks: the service is closed")

// Close begins no more test events, waits for those under way up to
// [Config.DrainTimeout], cuts short what is left, and returns once nothing more is sent
// of them. What Run does it leaves alone: end its context for that.
func (s *WebhookService) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), max(s.dispatcher.config.DrainTimeout, 0))
	defer cancel()
	s.tests.close(ctx)
}

// CreateParams says what webhook to create.
type CreateParams struct {
	// URL receives the events: https, with a host, at most 2,048 characters of
	// ASCII, without user information and fragment, not pointing into a
	// special-purpose network.
	URL string

	// Events are the types to subscribe to, at least one; duplicates are
	// folded.
	Events []EventType

	// BalanceThreshold is for balance.low events; zero: none.
	BalanceThreshold Amount

	// IdempotencyKey makes it safe to call Create again, for 24 hours: 1 to 128
	// visible ASCII characters that the account uses for this creation alone.
	// Empty: each call makes a webhook.
	IdempotencyKey string

	// By is the value of an API key that asks for the webhook, see apikeys.CredentialOf:
	// if it is deleted or rotated before the webhook is created, none is, and Create
	// returns [auth.ErrCredentialChanged]. Zero: the host asks.
	By auth.Credential
}

// Create makes an active webhook for the account, with a new signing secret, and
// returns it. An account is any string of 1 to 128 bytes of UTF-8 without
// control characters. Whether somebody may create such a webhook is for the
// caller to decide. [ErrLimit] if the account has [Config.MaxPerAccount] webhooks;
// [ErrIdempotencyKeys] if it has used ten times as many idempotency keys in 24 hours.
// One whose threshold is above the balance that was reported is told so at once, which may be
// before its receiver knows the secret; it is told again then, as after every failure.
//
// If the account has used params.IdempotencyKey before, no webhook is made: for the
// same params Create returns the webhook made then, as it is now, with the zero
// Secret; [ErrCreatedThenDeleted] if it was deleted; for other params [ErrIdempotencyMismatch]. Of several such
// calls at once one makes the webhook.
func (s *WebhookService) Create(ctx context.Context, account string, params CreateParams) (Webhook, error) {
	if err := checkAccount(account); err != nil {
		return Webhook{}, err
	}
	params, err := params.check(s.guard)
	if err != nil {
		return Webhook{}, err
	}
	now := s.now().UTC().Truncate(time.Millisecond)
	webhook := Webhook{
		ID:               s.ids.New(id.Webhook, now),
		Account:          account,
		URL:              params.URL,
		Events:           params.Events,
		Active:           true,
		BalanceThreshold: params.BalanceThreshold,
		Secret:           signing.NewSecret(),
		CreatedAt:        now,
	}
	fingerprint := params.fingerprint()
	err = s.store.CreateWebhook(ctx, webhook, CreateOptions{
		MaxCount:           max(s.maxCount, 0),
		IdempotencyKey:     params.IdempotencyKey,
		Fingerprint:        fingerprint,
		IdempotencyTTL:     input.IdempotencyTTL,
		MaxIdempotencyKeys: input.MaxIdempotencyKeys(s.maxCount),
		By:                 params.By,
	})
	var duplicate *DuplicateRequestError
	if errors.As(err, &duplicate) {
		webhook, err = s.replay(ctx, account, duplicate, fingerprint)
	}
	if errors.Is(err, ErrLimit) {
		err = &LimitError{s.maxCount}
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("create webhook: %w", err)
	}
	s.balanceMayBeLow(ctx, webhook)
	return webhook, nil
}

// Check returns params as Create would store them, or the [*ValidationError] that
// it would refuse them with: for callers that must know before they decide
// whether somebody may create such a webhook.
func (s *WebhookService) Check(params CreateParams) (CreateParams, error) {
	return params.check(s.guard)
}

func (p CreateParams) check(guard *outbound.Guard) (CreateParams, error) {
	err := checkURL(p.URL, guard)
	if err == nil {
		p.Events, err = checkEvents(p.Events)
	}
	if err == nil {
		if reason := input.IdempotencyKey(p.IdempotencyKey); reason != "" {
			err = invalid("Idempotency-Key", reason)
		}
	}
	return p, err
}

// checkEvents returns the subscription without duplicates.
func checkEvents(types []EventType) ([]EventType, error) {
	var folded []EventType
	var unknown []string
	for _, t := range types {
		switch {
		case !slices.Contains(eventTypes[:], t):
			unknown = append(unknown, fmt.Sprintf("%.32q", t))
		case !slices.Contains(folded, t):
			folded = append(folded, t)
		}
	}
	switch {
	case len(unknown) > 10:
		unknown = append(unknown[:10], "…")
	case len(unknown) == 0 && len(folded) > 0:
		return folded, nil
	case len(unknown) == 0:
		return nil, invalid("events", eventsRule)
	}
	return nil, invalid("events", eventsRule+"; unknown: "+strings.Join(unknown, ", "))
}

var eventsRule = func() string {
	var known []string
	for _, t := range eventTypes {
		known = append(known, string(t))
	}
	return "must be one or more of " + strings.Join(known, ", ")
}()

// Get returns the account's webhook of that id, or [ErrNotFound].
func (s *WebhookService) Get(ctx context.Context, account, webhookID string) (Webhook, error) {
	webhook, err := s.store.WebhookByID(ctx, account, webhookID)
	if err != nil {
		return Webhook{}, fmt.Errorf("get webhook: %w", err)
	}
	webhook.dropExpired(s.now())
	return webhook, nil
}

// List returns a part of the account's webhooks, newest first; an empty list past
// the end. page.Limit must be at least 1.
func (s *WebhookService) List(ctx context.Context, account string, page Page) ([]Webhook, error) {
	if page.Limit < 1 {
		return nil, invalid("limit", "must be at least 1")
	}
	list, err := s.store.ListWebhooks(ctx, account, page)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	now := s.now()
	for i := range list {
		list[i].dropExpired(now)
	}
	return list, nil
}

// Delete removes the account's webhook of that id with all that it is owed, or
// returns [ErrNotFound]. Attempts that this process is making are cut short, that of
// a test event as well: once Delete has returned nil, it sends nothing more to the
// webhook. If ctx ends while it waits for that, the webhook is deleted and Delete
// returns the context's error.
func (s *WebhookService) Delete(ctx context.Context, account, webhookID string) error {
	return s.DeleteIf(ctx, account, webhookID, nil)
}

// DeleteIf is Delete if the condition holds.
func (s *WebhookService) DeleteIf(ctx context.Context, account, webhookID string, condition Condition) error {
	err := errChanged
	for errors.Is(err, errChanged) {
		check, refused := s.ask(ctx, account, webhookID, condition, func(w *Webhook) { *w = Webhook{} })
		if refused != nil {
			return fmt.Errorf("delete webhook: %w", refused)
		}
		err = s.store.DeleteWebhook(ctx, account, webhookID, check)
	}
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete webhook: %w", err)
	}
	if err != nil { // it may have been deleted nevertheless
		return fmt.Errorf("delete webhook: %w", errors.Join(err, s.evict(ctx, account, webhookID)))
	}
	if err := s.evict(ctx, account, webhookID); err != nil {
		return fmt.Errorf("delete webhook: deleted, but an attempt may be under way: %w", err)
	}
	return nil
}

// evict returns when nothing more will be sent to a webhook that was deleted, or
// when ctx is done.
func (s *WebhookService) evict(ctx context.Context, account, webhookID string) error {
	return errors.Join(s.tests.evict(ctx, account, webhookID), s.dispatcher.evict(ctx, webhookID))
}

// Publish sends an event to all webhooks of its account that are active and
// subscribed to its type at this moment. When it returns nil, the event and its
// deliveries are stored as durably as the store can, and each will be delivered
// at least once or end as dead; Run does that. When it returns an error that is
// not a [*ValidationError], the event may or may not have been stored: publish
// it again under the same id to be sure.
func (s *WebhookService) Publish(ctx context.Context, event Event) error {
	encoded, err := s.Encode(event)
	if err != nil {
		return err
	}
	deliveries, err := s.store.Enqueue(ctx, encoded)
	if deliveries > 0 || err != nil {
		s.dispatcher.wake()
	}
	if err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	return nil
}

// Encode returns an event as Publish would store it, or the [*ValidationError] that it
// would refuse it with, and stores nothing: for stores that can store it as a part of
// the host's own transaction. What is left out of the event is filled in.
func (s *WebhookService) Encode(event Event) (EncodedEvent, error) {
	now := s.now()
	if event.ID == "" {
		event.ID = s.ids.New(id.Event, now)
	}
	if event.Timestamp.IsZero() {
		event.Timestamp = now
	}
	return event.encode()
}

// NewEventID returns a new id for an [Event], for hosts that want to know it
// before publishing.
func (s *WebhookService) NewEventID() string { return s.ids.New(id.Event, s.now()) }
