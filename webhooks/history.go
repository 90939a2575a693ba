package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
)

// Deliveries returns a part of the deliveries of the account's webhook with their
// attempts, newest first, or [ErrNotFound].
func (s *WebhookService) Deliveries(ctx context.Context, account, webhookID string, query DeliveryQuery) (DeliveryPage, error) {
	if query.Limit < 1 {
		return DeliveryPage{}, invalid("limit", "must be at least 1")
	}
	var err error
	if query.States, err = checkStates(query.States, Pending, Delivered, Dead, Skipped); err != nil {
		return DeliveryPage{}, err
	}
	if !input.ID(webhookID) {
		return DeliveryPage{}, fmt.Errorf("list deliveries: %w", ErrNotFound)
	}
	page, err := s.store.ListDeliveries(ctx, account, webhookID, query)
	if err != nil {
		return DeliveryPage{}, fmt.Errorf("list deliveries: %w", err)
	}
	return page, nil
}

// Delivery returns the delivery of the account's event to the webhook, or
// [ErrNotFound].
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
	return Delivery{}, fmt.Errorf("get delivery: %w", ErrNotFound)
}

// EventDeliveries tells what became of the account's event: one delivery per
// webhook it was meant for, with its attempts. [ErrNotFound] if there is no such
// event.
func (s *WebhookService) EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error) {
	if !validEventID(eventID) {
		return nil, fmt.Errorf("get deliveries of event: %w", ErrNotFound)
	}
	deliveries, err := s.store.EventDeliveries(ctx, account, eventID)
	if err != nil {
		return nil, fmt.Errorf("get deliveries of event: %w", err)
	}
	return deliveries, nil
}

// Redeliver makes a delivery of the account pending and due at once, and its retries
// start over. One that is pending becomes due at once, and its retries go on. It is sent
// before all other pending deliveries of the webhook, also to a receiver that is down, but a
// second after the last attempt that was requested. If an attempt is under way, that is the one
// that is made, and its result counts.
// [ErrNotFound] if there is no such delivery, or its webhook was deleted or its
// payload purged.
func (s *WebhookService) Redeliver(ctx context.Context, account, webhookID, eventID string) error {
	if !validEventID(eventID) || !input.ID(webhookID) {
		return fmt.Errorf("redeliver: %w", ErrNotFound)
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
	return nil
}

// RecoverParams says which deliveries to recover.
type RecoverParams struct {
	// States are one or more of Dead, Skipped, Delivered and Pending. Default: Dead and
	// Skipped. Pending deliveries that wait for their next attempt are due now, and their
	// retries go on; those of the other states start over.
	States []DeliveryState

	From time.Time // published then or later; in the past. Default: since ever
	To   time.Time // published before; not in the future. Default: until now

	// If is asked about the webhook, which a recovery leaves as it is: as what it is and
	// as what it would be.
	If Condition
}

// Recover begins to make deliveries of the account's webhook pending again, and
// returns the job that does so, or [ErrNotFound], or [ErrRecovering] if one of this
// webhook is not done yet. Jobs of several webhooks take turns. What is recovered goes through
// the same caps as all else, and after what is published meanwhile; one attempt is made at
// once, also if the receiver is down. [WebhookService.Run]
// does the work; ask [WebhookService.Recovery] how far it is.
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
		return p, invalid("from", "must be before to")
	case p.From.After(now):
		return p, invalid("from", "must not be in the future")
	case p.To.After(now):
		return p, invalid("to", "must not be in the future")
	}
	return p, nil
}

// Recovery returns the account's recovery of that id, or [ErrNotFound]. It is
// kept for [Retention.Attempts].
func (s *WebhookService) Recovery(ctx context.Context, account, recoveryID string) (Recovery, error) {
	if !input.ID(recoveryID) {
		return Recovery{}, fmt.Errorf("get recovery: %w", ErrNotFound)
	}
	recovery, err := s.store.RecoveryByID(ctx, account, recoveryID)
	if err != nil {
		return Recovery{}, fmt.Errorf("get recovery: %w", err)
	}
	return recovery, nil
}

// checkStates returns the states without duplicates if all are among those allowed.
func checkStates(states []DeliveryState, allowed ...DeliveryState) (folded []DeliveryState, err error) {
	for _, state := range states {
		switch {
		case !slices.Contains(allowed, state):
			return nil, invalid("states", fmt.Sprintf("must be one or more of %s; unknown: %.32q", strings.Join(namesOf(allowed), ", "), state))
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

// Body returns the body of the account's event, to the byte: what was signed and is sent to receivers.
// [ErrNotFound] if there is no such event; [ErrBodyGone] if it is not kept any more, see
// [Retention.Payloads], or was not since no webhook was to get it.
func (s *WebhookService) Body(ctx context.Context, account, eventID string) ([]byte, error) {
	event, err := s.Event(ctx, account, eventID)
	if err == nil && event.Body == nil {
		err = fmt.Errorf("get body of event: %w", ErrBodyGone)
	}
	return event.Body, err
}

// Event returns the account's event of that id, whose Body is nil where Body returns
// [ErrBodyGone]; or [ErrNotFound].
func (s *WebhookService) Event(ctx context.Context, account, eventID string) (EncodedEvent, error) {
	if !validEventID(eventID) {
		return EncodedEvent{}, fmt.Errorf("get event: %w", ErrNotFound)
	}
	event, err := s.store.EventByID(ctx, account, eventID)
	if err != nil {
		return EncodedEvent{}, fmt.Errorf("get event: %w", err)
	}
	return event, nil
}

// Events returns a part of the account's events, newest first or oldest first, whatever
// became of them: what was published while no webhook was subscribed is there, too, as long as
// it is kept. A program that follows the list asks for the oldest first, and goes on by
// [EventPage.Resume]: it gets each event once, also while events are published.
//
// query.Limit must be at least 1. If ctx ends the page is lost, and asking again returns it.
func (s *WebhookService) Events(ctx context.Context, account string, query EventQuery) (EventPage, error) {
	if query.Limit < 1 {
		return EventPage{}, invalid("limit", "must be at least 1")
	}
	page, err := s.store.ListEvents(ctx, account, query)
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	return page, nil
}

// BodyKeptUntil returns until when the body of an event is kept at least that was published then, or the
// zero time if for ever.
func (s *WebhookService) BodyKeptUntil(published time.Time) time.Time {
	if s.dispatcher.config.Retention.Payloads < 0 {
		return time.Time{}
	}
	return published.Add(s.dispatcher.config.Retention.Payloads)
}
