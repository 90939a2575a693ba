package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/jsontext"
	"github.com/storageapi/storageapi/webhooks/internal/testgate"
)

// ErrTesting is returned by [WebhookService.SendTest] if a test event to the webhook is already
// running, or if too many test events are running. The limits are 256 in this process and 8 per
// account. If fewer than 64 of the 256 places are free, an account may use only an eighth of the
// free places.
var ErrTesting = errors.New("a test event is already running")

// A TestEvent is an event that was sent to one webhook, with its attempt.
type TestEvent struct {
	ID      string // "evt_" and a ULID
	Type    EventType
	Attempt Attempt
	Body    []byte // the signed request body; not stored
}

// SendTest sends an event of [TypeTest] to the account's webhook, active or not, and returns its
// attempt, or [ErrHeld] if the webhook is on hold. The event is signed like any other event and
// sent once, which takes at most [Outbound.Timeout], or two seconds more if this host may be the
// cause of a failure. The data of the event is {"webhookId":…}. The event is not stored, counted
// or reported to [Config.Observe], and its failure does not affect the webhook.
//
// If the test event arrives and the webhook is active with an open circuit breaker, one pending
// delivery is attempted at once, but no sooner than a second after the last requested attempt. If
// that attempt succeeds too, the breaker closes; if it fails, the other deliveries wait as before.
//
// The caller chooses the targets of test events, so their rate is limited: at least a second
// between two test events to one webhook, and at most 8 a second per account. SendTest waits up to
// a second to keep to these limits.
//
// SendTest works without Run. It returns the context's error if ctx ends, [apierr.ErrNotFound] if
// the webhook is deleted, [ErrTesting] if too many test events are running, and [ErrClosed] after
// Close.
func (s *WebhookService) SendTest(ctx context.Context, account, webhookID string) (TestEvent, error) {
	return s.sendTest(ctx, account, webhookID, TypeTest, func(body []byte) ([]byte, error) {
		return jsontext.AppendValue(body, map[string]string{"webhookId": webhookID})
	})
}

// SendExample is like [WebhookService.SendTest], but sends the declared Example of an event type,
// to which the webhook need not be subscribed. The receiver cannot tell it from a real event of
// this type. SendExample returns a [*apierr.ValidationError] if t is neither [TypeTest] nor a
// declared type with an Example.
func (s *WebhookService) SendExample(ctx context.Context, account, webhookID string, t EventType) (TestEvent, error) {
	if t == TypeTest {
		return s.SendTest(ctx, account, webhookID)
	}
	declared := s.events.declared[t]
	if declared == nil || declared.Example == nil {
		return TestEvent{}, input.Invalid("type", "must be one of "+listOf(s.ExampleTypes()))
	}
	return s.sendTest(ctx, account, webhookID, t, func(body []byte) ([]byte, error) { return declared.append(body, declared.Example) })
}

// ExampleTypes returns the types that [WebhookService.SendExample] can send: [TypeTest], and each
// type that is declared with an Example.
func (s *WebhookService) ExampleTypes() []EventType {
	types := []EventType{TypeTest}
	for _, t := range s.events.types {
		if s.events.declared[t].Example != nil {
			types = append(types, t)
		}
	}
	return types
}

func (s *WebhookService) sendTest(ctx context.Context, account, webhookID string, t EventType, data func([]byte) ([]byte, error)) (TestEvent, error) {
	pass, err := s.tests.Begin(account, webhookID)
	switch err {
	case nil:
	case testgate.ErrClosed:
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrClosed)
	default:
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrTesting)
	}
	defer s.tests.End(pass)
	defer context.AfterFunc(ctx, pass.Cancel)()
	pass.Sleep(pass.At) // a Cancel that ends the sleep also ends the attempt
	// Read the webhook only now: if it is deleted later, the deletion cancels the pass.
	webhook, err := s.Get(ctx, account, webhookID)
	if err != nil {
		return TestEvent{}, err
	}
	if webhook.Held {
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrHeld)
	}
	now := s.now().UTC().Truncate(time.Millisecond)
	event, err := newEncodedEvent(s.ids.New(id.Event, now), account, t, now, data)
	if err != nil {
		return TestEvent{}, err
	}
	res := s.dispatcher.sender.attempt(&pass.Canceler, &task{Event: event, Webhook: &webhook, Attempt: 1})
	if !s.running.Load() { // Run closes them when it ends
		s.dispatcher.sender.client.CloseIdle()
	}
	switch {
	case res.canceled && ctx.Err() != nil:
		return TestEvent{}, fmt.Errorf("send test event: %w", ctx.Err())
	case res.canceled && s.tests.Closed():
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrClosed)
	case res.canceled:
		return TestEvent{}, fmt.Errorf("send test event: %w", apierr.ErrNotFound)
	}
	if res.attempt.Error == "" && webhook.Active {
		s.dispatcher.retrust(ctx, account, webhookID)
	}
	return TestEvent{event.ID, t, res.attempt, event.Body}, nil
}
