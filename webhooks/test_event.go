package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/storageapi/storageapi/internal/id"
)

// Bounds of what test events take beside the deliveries.
const (
	maxTests        = 64 // under way at a time
	maxAccountTests = 8  // of one account
)

// ErrTesting is returned by [WebhookService.SendTest] if a test event is under way to
// the webhook already, or too many are: 64 in this process, 8 of them of the account.
var ErrTesting = errors.New("a test event is under way already")

// A TestEvent is an event that was sent to one webhook, and what came of it.
type TestEvent struct {
	ID      string // "evt_" and a ULID
	Attempt Attempt
}

// SendTest sends an event of [TypeTest] to the account's webhook and returns what
// came of it, or [ErrNotFound] or [ErrTesting]. It is sent once, like any other event and by the same
// client, whether the webhook is active or not, and takes no longer than
// [Config.Timeout]. Its data is {"webhookId":…}. Nothing of it is stored, counted or
// told to [Hooks], and whether it arrives changes nothing of the webhook.
//
// It needs no Run. If ctx ends it is cut short, and SendTest returns the context's
// error; if the webhook is deleted, [ErrNotFound].
func (s *WebhookService) SendTest(ctx context.Context, account, webhookID string) (TestEvent, error) {
	test, err := s.tests.begin(account, webhookID)
	if err != nil {
		return TestEvent{}, fmt.Errorf("send test event: %w", err)
	}
	defer s.tests.end(test)
	defer context.AfterFunc(ctx, test.stop.now)()
	// Whoever deletes it from here on finds the test.
	webhook, err := s.Get(ctx, account, webhookID)
	if err != nil {
		return TestEvent{}, err
	}
	now := s.now().UTC().Truncate(time.Millisecond)
	event, err := newEnvelope(s.ids.New(id.Event, now), account, TypeTest, now, map[string]string{"webhookId": webhook.ID})
	if err != nil {
		return TestEvent{}, err
	}
	res := s.dispatcher.client.attempt(&test.stop, &Task{Event: event, Webhook: &webhook, Attempt: 1})
	if !s.running.Load() { // or else Run does
		s.dispatcher.client.conns.close()
	}
	switch {
	case res.canceled && ctx.Err() != nil:
		return TestEvent{}, fmt.Errorf("send test event: %w", ctx.Err())
	case res.canceled:
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrNotFound)
	}
	return TestEvent{event.ID, res.attempt}, nil
}

// tests are the test events under way. The zero tests are none.
type tests struct {
	mu       sync.Mutex
	underWay map[string]map[string]*test // by account and webhook
	count    int
}

// A test is a test event under way.
type test struct {
	account, webhook string
	stop             stop
}

// begin registers a test, until end, or returns ErrTesting.
func (t *tests) begin(account, webhook string) (*test, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.underWay[account]
	if own[webhook] != nil || len(own) >= maxAccountTests || t.count >= maxTests {
		return nil, ErrTesting
	}
	if t.underWay == nil {
		t.underWay = make(map[string]map[string]*test)
	}
	if own == nil {
		own = make(map[string]*test)
		t.underWay[account] = own
	}
	begun := &test{account: account, webhook: webhook}
	own[webhook] = begun
	t.count++
	return begun, nil
}

func (t *tests) end(ended *test) {
	ended.stop.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.underWay[ended.account]
	if delete(own, ended.webhook); len(own) == 0 {
		delete(t.underWay, ended.account)
	}
	t.count--
}

// evict cuts short the test event to a webhook that was deleted, and returns when
// nothing more will be sent, or when ctx is done.
func (t *tests) evict(ctx context.Context, account, webhook string) error {
	t.mu.Lock()
	found := t.underWay[account][webhook]
	t.mu.Unlock()
	if found == nil {
		return nil
	}
	found.stop.now()
	return found.stop.wait(ctx)
}
