package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
)

// ListDeliveries returns a page of the webhook's deliveries with their attempts, newest first. It
// returns [apierr.ErrNotFound] if the account has no such webhook.
func (s *WebhookService) ListDeliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) (DeliveryPage, error) {
	if query.Limit < 1 {
		return DeliveryPage{}, input.Invalid("limit", "must be at least 1")
	}
	var err error
	if query.States, err = checkStates(query.States, Pending, Delivered, Dead, Skipped); err != nil {
		return DeliveryPage{}, err
	}
	if !input.ID(webhookID) {
		return DeliveryPage{}, fmt.Errorf("list deliveries: %w", apierr.ErrNotFound)
	}
	page, err := s.store.ListDeliveries(ctx, account, webhookID, query)
	if err != nil {
		return DeliveryPage{}, fmt.Errorf("list deliveries: %w", err)
	}
	return page, nil
}

// Delivery returns the delivery of the account's event to the webhook, or [apierr.ErrNotFound].
func (s *WebhookService) Delivery(ctx context.Context, account, webhookID, eventID string) (Delivery, error) {
	list, err := s.EventDeliveries(ctx, account, eventID)
	if err != nil {
		return Delivery{}, err
	}
	for _, d := range list {
		if d.WebhookID == webhookID {
			return d, nil
		}
	}
	return Delivery{}, fmt.Errorf("get delivery: %w", apierr.ErrNotFound)
}

// EventDeliveries returns the deliveries of the account's event with their attempts, one per
// webhook, or [apierr.ErrNotFound] if there is no such event.
func (s *WebhookService) EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error) {
	if !validEventID(eventID) {
		return nil, fmt.Errorf("get deliveries of event: %w", apierr.ErrNotFound)
	}
	deliveries, err := s.store.EventDeliveries(ctx, account, eventID)
	if err != nil {
		return nil, fmt.Errorf("get deliveries of event: %w", err)
	}
	return deliveries, nil
}

// Redeliver schedules one of the account's deliveries to be sent at once. A settled delivery
// becomes pending again, and its retries start over; a pending delivery continues its retries. The
// delivery goes ahead of the webhook's other pending deliveries, even if the receiver is down, but
// no sooner than a second after the last requested attempt. If an attempt is already running,
// Redeliver starts no other, and the result of the running attempt counts. Redeliver returns
// [apierr.ErrNotFound] if there is no such delivery, its webhook was deleted, or its payload was
// purged.
func (s *WebhookService) Redeliver(ctx context.Context, account, webhookID, eventID string) error {
	if !validEventID(eventID) || !input.ID(webhookID) {
		return fmt.Errorf("redeliver: %w", apierr.ErrNotFound)
	}
	webhook, err := s.store.WebhookByID(ctx, account, webhookID)
	if err != nil {
		return fmt.Errorf("redeliver: %w", err)
	}
	entry := s.entries.of(ctx, audit.DeliveryRedelivered, &webhook)
	entry.Object = eventID
	err = s.store.Redeliver(ctx, account, webhookID, eventID, entry)
	if err != nil {
		return fmt.Errorf("redeliver: %w", err)
	}
	s.dispatcher.reporter.Changed(&entry)
	return nil
}

// RecoverParams selects the deliveries to recover.
type RecoverParams struct {
	// States are one or more of Dead, Skipped, Delivered and Pending. Default: Dead and Skipped.
	// Pending deliveries that wait for a retry become due now, and their retries continue. The
	// retries of other deliveries start over.
	States []DeliveryState

	From time.Time // start of the publication times, inclusive; not in the future. Default: no limit
	To   time.Time // end of the publication times, exclusive; not in the future. Default: now

	// If is called with the webhook as both before and after, since a recovery does not change the
	// webhook.
	If Condition
}

// Recover starts a job that makes deliveries of the account's webhook pending again. It returns
// the job, or [apierr.ErrNotFound], or [ErrRecovering] if another recovery of this webhook is
// running. Jobs of several webhooks take turns. Recovered deliveries obey the usual limits, and
// are sent after new events. One attempt is made at once, even if the receiver is down.
// [WebhookService.Run] does the work; [WebhookService.Recovery] returns the progress.
func (s *WebhookService) Recover(ctx context.Context, account, webhookID string, params RecoverParams) (Recovery, error) {
	params, err := params.check()
	if err != nil {
		return Recovery{}, err
	}
	unchanged := func(*Webhook) {}
	if _, err := s.ask(ctx, account, webhookID, params.If, unchanged); err != nil {
		return Recovery{}, fmt.Errorf("recover deliveries: %w", err)
	}
	created := s.now().UTC().Truncate(time.Millisecond)
	recovery := Recovery{
		ID:        s.ids.New(id.Recovery, created),
		Account:   account,
		WebhookID: webhookID,
		States:    params.States,
		From:      params.From.UTC(),
		To:        params.To.UTC(),
		CreatedAt: created,
	}
	webhook, err := s.store.WebhookByID(ctx, account, webhookID)
	if err != nil {
		return Recovery{}, fmt.Errorf("recover deliveries: %w", err)
	}
	entry := s.entries.of(ctx, audit.RecoveryStarted, &webhook)
	entry.Object = recovery.ID
	if err := s.store.CreateRecovery(ctx, recovery, entry); err != nil {
		return Recovery{}, fmt.Errorf("recover deliveries: %w", err)
	}
	s.dispatcher.reporter.Changed(&entry)
	s.dispatcher.probe(ctx, account, webhookID)
	s.maintainer.wake()
	return s.Recovery(ctx, account, recovery.ID)
}

func (p RecoverParams) check() (RecoverParams, error) {
	now := time.Now()
	var err error
	if p.States, err = checkStates(p.States, Dead, Skipped, Delivered, Pending); err != nil {
		return p, err
	}
	if len(p.States) == 0 {
		p.States = []DeliveryState{Dead, Skipped}
	}
	switch {
	case !p.To.IsZero() && !p.From.Before(p.To):
		return p, input.Invalid("from", "must be before to")
	case p.From.After(now):
		return p, input.Invalid("from", "must not be in the future")
	case p.To.After(now):
		return p, input.Invalid("to", "must not be in the future")
	}
	return p, nil
}

// Recovery returns the account's recovery with the given ID, or [apierr.ErrNotFound]. A finished
// recovery is kept for [Retention.Attempts].
func (s *WebhookService) Recovery(ctx context.Context, account, recoveryID string) (Recovery, error) {
	if !input.ID(recoveryID) {
		return Recovery{}, fmt.Errorf("get recovery: %w", apierr.ErrNotFound)
	}
	recovery, err := s.store.RecoveryByID(ctx, account, recoveryID)
	if err != nil {
		return Recovery{}, fmt.Errorf("get recovery: %w", err)
	}
	return recovery, nil
}

// checkStates returns the states without duplicates, or an error if one is not allowed.
func checkStates(states []DeliveryState, allowed ...DeliveryState) (folded []DeliveryState, err error) {
	for _, state := range states {
		switch {
		case !slices.Contains(allowed, state):
			return nil, input.Invalid("states", fmt.Sprintf("must be one or more of %s; unknown: %.32q", strings.Join(namesOf(allowed), ", "), state))
		case !slices.Contains(folded, state):
			folded = append(folded, state)
		}
	}
	return folded, nil
}

func namesOf(states []DeliveryState) []string {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	return names
}

// Body returns the exact body of the account's event, as it is signed and sent. It returns
// [apierr.ErrNotFound] if there is no such event. It returns [ErrBodyGone] if the body is no
// longer kept, see [Retention.Payloads], or was never kept because there was no webhook to receive
// it.
func (s *WebhookService) Body(ctx context.Context, account, eventID string) ([]byte, error) {
	event, err := s.Event(ctx, account, eventID)
	if err == nil && event.Body == nil {
		err = fmt.Errorf("get body of event: %w", ErrBodyGone)
	}
	return event.Body, err
}

// Event returns the account's event with the given ID, or [apierr.ErrNotFound]. The Body field is
// nil if [WebhookService.Body] would return [ErrBodyGone].
func (s *WebhookService) Event(ctx context.Context, account, eventID string) (EncodedEvent, error) {
	event, _, err := s.event(ctx, account, eventID)
	return event, err
}

// event also returns the time when the store accepted the event.
func (s *WebhookService) event(ctx context.Context, account, eventID string) (event EncodedEvent, publishedAt time.Time, err error) {
	if !validEventID(eventID) {
		return EncodedEvent{}, time.Time{}, fmt.Errorf("get event: %w", apierr.ErrNotFound)
	}
	event, publishedAt, err = s.store.EventByID(ctx, account, eventID)
	if err != nil {
		return EncodedEvent{}, time.Time{}, fmt.Errorf("get event: %w", err)
	}
	return event, publishedAt, nil
}

// ListEvents returns a page of the account's events, newest first or oldest first. It includes
// events that no webhook was subscribed to, if they are still kept. To follow the list, set
// OldestFirst and continue with [EventPage.Resume]: this returns each event once, even while
// events are published. ListEvents returns [apierr.ErrNotFound] if query.WebhookID is not the ID
// of a webhook of the account.
//
// query.Limit must be at least 1. If ctx ends, the page is lost; the same query returns it again.
func (s *WebhookService) ListEvents(ctx context.Context, account string, query EventQuery) (EventPage, error) {
	if query.Limit < 1 {
		return EventPage{}, input.Invalid("limit", "must be at least 1")
	}
	if query.WebhookID != "" && !input.ID(query.WebhookID) {
		return EventPage{}, fmt.Errorf("list events: %w", apierr.ErrNotFound)
	}
	page, err := s.store.ListEvents(ctx, account, query)
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	return page, nil
}

// BodyKeptUntil returns the earliest time at which the body of an event with this publication time
// can be removed, or the zero time if bodies are kept forever.
func (s *WebhookService) BodyKeptUntil(published time.Time) time.Time {
	if s.dispatcher.config.Retention.Payloads < 0 {
		return time.Time{}
	}
	return published.Add(s.dispatcher.config.Retention.Payloads)
}
