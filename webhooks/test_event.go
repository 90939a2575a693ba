package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/webhooks/internal/hostcode"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// Bounds of what test events take beside the deliveries.
const (
	maxTests        = 256         // under way at a time
	maxAccountTests = 8           // of one account, and how many it begins within testInterval
	testInterval    = time.Second // between the beginnings of two to one webhook
)

// ErrTesting is returned by [WebhookService.SendTest] if a test event is under way to
// the webhook already, or too many are: 256 in this process, or 8 of the account, or an
// eighth of what is left of those 256 if that is less.
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
// told to [Hooks], and whether it arrives changes nothing of the webhook. But if it does,
// what an active webhook is owed does not wait any more for its receiver, had that been
// down: the next attempt is made at once, a second after the last one that somebody
// asked for at the earliest. If that fails, the rest waits as before.
//
// Whoever may send them chooses where to. So a second passes between two to one webhook,
// and an account begins 8 a second at most: SendTest waits for that, a second at most.
//
// It needs no Run. If ctx ends it is cut short, and SendTest returns the context's
// error; if the webhook is deleted, [ErrNotFound]; after Close, [ErrClosed].
func (s *WebhookService) SendTest(ctx context.Context, account, webhookID string) (TestEvent, error) {
	test, err := s.tests.begin(account, webhookID)
	if err != nil {
		return TestEvent{}, fmt.Errorf("send test event: %w", err)
	}
	defer s.tests.end(test)
	defer context.AfterFunc(ctx, test.cancel.Cancel)()
	test.cancel.Sleep(test.at) // what has stopped it stops the attempt, too
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
	res := s.dispatcher.sender.attempt(&test.cancel, &Task{Event: event, Webhook: &webhook, Attempt: 1})
	if !s.running.Load() { // or else Run does
		s.dispatcher.sender.client.CloseIdle()
	}
	switch {
	case res.canceled && ctx.Err() != nil:
		return TestEvent{}, fmt.Errorf("send test event: %w", ctx.Err())
	case res.canceled && s.tests.isClosed():
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrClosed)
	case res.canceled:
		return TestEvent{}, fmt.Errorf("send test event: %w", ErrNotFound)
	}
	if res.attempt.Error == "" && webhook.Active {
		s.dispatcher.retrust(ctx, account, webhookID)
	}
	return TestEvent{event.ID, res.attempt}, nil
}

// tests are the test events under way, and those of the last second. The zero tests are
// none.
type tests struct {
	mu       sync.Mutex
	accounts map[string]*accountTests
	begun    []*test // of the last second, about in the order of their beginnings
	underWay int
	closed   bool
}

// accountTests are those of one account.
type accountTests struct {
	underWay map[string]*test // by webhook
	begun    []*test          // of the last second, in the order of their beginnings
}

// A test is a test event under way, or that was.
type test struct {
	account, webhook string
	at               time.Time // when it begins
	cancel           outbound.Canceler
}

// begin registers a test, until end, or returns ErrTesting. It begins at its time.
func (t *tests) begin(account, webhook string) (*test, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	now := time.Now()
	t.forget(now)
	own := t.accounts[account]
	if own == nil {
		own = &accountTests{underWay: make(map[string]*test)}
	}
	share := max(1, min(maxAccountTests, (maxTests-t.underWay)/maxAccountTests))
	if own.underWay[webhook] != nil || len(own.underWay) >= share || t.underWay >= maxTests {
		return nil, ErrTesting
	}
	begun := &test{account: account, webhook: webhook, at: now}
	for i, before := range own.begun {
		if before.webhook == webhook || i == len(own.begun)-maxAccountTests {
			begun.at = later(begun.at, before.at.Add(testInterval))
		}
	}
	if t.accounts == nil {
		t.accounts = make(map[string]*accountTests)
	}
	t.accounts[account] = own
	own.underWay[webhook] = begun
	at, _ := slices.BinarySearchFunc(own.begun, begun.at.Add(1), func(b *test, at time.Time) int { return b.at.Compare(at) })
	own.begun = slices.Insert(own.begun, at, begun)
	t.begun = append(t.begun, begun)
	t.underWay++
	return begun, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (t *tests) end(ended *test) {
	ended.cancel.End()
	t.mu.Lock()
	defer t.mu.Unlock()
	now, own := time.Now(), t.accounts[ended.account]
	delete(own.underWay, ended.webhook)
	t.underWay--
	if now.Before(ended.at) { // it never began
		isEnded := func(b *test) bool { return b == ended }
		t.begun, own.begun = slices.DeleteFunc(t.begun, isEnded), slices.DeleteFunc(own.begun, isEnded)
	}
	t.drop(ended.account)
	t.forget(now)
}

// forget forgets what began more than a second ago.
func (t *tests) forget(now time.Time) {
	for len(t.begun) > 0 && now.Sub(t.begun[0].at) >= testInterval {
		account := t.begun[0].account
		t.begun = t.begun[1:]
		if own := t.accounts[account]; own != nil {
			own.begun = slices.DeleteFunc(own.begun, func(b *test) bool { return now.Sub(b.at) >= testInterval })
			t.drop(account)
		}
	}
}

// drop forgets an account of which there is nothing to know.
func (t *tests) drop(account string) {
	if own := t.accounts[account]; len(own.underWay)+len(own.begun) == 0 {
		delete(t.accounts, account)
	}
}

// evict cuts short the test event to a webhook that was deleted, and returns when
// nothing more will be sent, or when ctx is done.
func (t *tests) evict(ctx context.Context, account, webhook string) error {
	t.mu.Lock()
	var found *test
	if own := t.accounts[account]; own != nil {
		found = own.underWay[webhook]
	}
	t.mu.Unlock()
	if found == nil {
		return nil
	}
	found.cancel.Cancel()
	return found.cancel.Wait(ctx)
}

// close lets no more tests begin, and returns when those under way have ended. When ctx
// is done it cuts them short.
func (t *tests) close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	var left []*test
	for _, own := range t.accounts {
		for _, test := range own.underWay {
			left = append(left, test)
		}
	}
	t.mu.Unlock()
	for _, test := range left {
		_ = test.cancel.Wait(ctx)
	}
	late, cancel := context.WithTimeout(context.Background(), hostcode.Grace)
	defer cancel()
	for _, test := range left {
		test.cancel.Cancel()
	}
	for _, test := range left {
		_ = test.cancel.Wait(late) // it may wait for the store
	}
}

func (t *tests) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}
