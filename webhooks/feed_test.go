package webhooks_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// interrupted is a store whose Deliver fails on demand.
type interrupted struct {
	*flaky
	fails chan error
	calls []time.Time // when Deliver was called
}

func (s *interrupted) Deliver(ctx context.Context, to driver.Scheduler) error {
	s.calls = append(s.calls, time.Now())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.fails:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err := s.flaky.Deliver(ctx, to)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func TestRun_DeliverFails_RestartsAndRepeatsNoAttempt(t *testing.T) {
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 2}}, sleeping(10*time.Second), func(b *bubble) {
		store := &interrupted{flaky: b.store, fails: make(chan error)}
		b.service = b.newService(store, webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 2}})
		b.subscribe("a")
		b.start()
		var events []string
		for range 5 {
			events = append(events, b.publish())
		}
		time.Sleep(time.Second) // two attempts are in flight
		store.fails <- errOutage
		synctest.Wait()
		if got := b.service.Health(b.Context()).WriteError; !errors.Is(got, errOutage) {
			t.Errorf("WriteError = %v while nothing is reported, want %v", got, errOutage)
		}
		if lines := b.logs.Lines("level=ERROR", "step=deliver", errOutage.Error()); len(lines) != 1 {
			t.Errorf("logged %q, want one line", lines)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := b.service.Health(b.Context()); got.WriteError != nil || got.Run != webhooks.RunUnderWay || len(store.calls) != 2 {
			t.Errorf("after %d calls of Deliver: %+v; want it running after 2", len(store.calls), got)
		}
		for _, event := range events {
			b.wantState(event, webhooks.Delivered, 1)
		}
		if hits := len(b.hits.of("a")); hits != len(events) {
			t.Errorf("%d requests for %d events", hits, len(events))
		}
	})
}

func TestRun_DeliverFailsAgainAndAgain_PausesDouble(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		store := &interrupted{flaky: b.store, fails: make(chan error)}
		b.service = b.newService(store, webhooks.Config{})
		b.subscribe("a")
		b.start()
		for range 4 {
			store.fails <- errOutage
		}
		time.Sleep(2 * time.Minute)
		store.fails <- errOutage // the call lasted for more than a minute
		time.Sleep(time.Minute)
		synctest.Wait()
		var pauses []time.Duration
		for i, at := range store.calls[1:] {
			pauses = append(pauses, at.Sub(store.calls[i]))
		}
		if len(pauses) != 5 {
			t.Fatalf("pauses %v, want 5", pauses)
		}
		for i := range 3 {
			if pauses[i+1] != 2*pauses[i] {
				t.Errorf("pauses %v, want each of the first four twice as long as the one before", pauses)
			}
		}
		if last := pauses[4] - (2*time.Minute - pauses[3]); last != pauses[0] {
			t.Errorf("the last pause is %v, want it as short as the first, %v", last, pauses[0])
		}
		event := b.publish()
		synctest.Wait()
		b.wantState(event, webhooks.Delivered, 1)
	})
}

func TestRun_TwoHandlersOnOneStore_OneDeliversAndTheOtherWaits(t *testing.T) {
	inBubble(t, webhooks.Config{}, sleeping(time.Second), func(b *bubble) {
		webhook := b.subscribe("a")
		first, second := b.service, b.newService(b.store, webhooks.Config{})
		want := func(of *webhooks.WebhookService, run webhooks.RunState, attempts bool) {
			t.Helper()
			synctest.Wait()
			got := of.Health(b.Context())
			if got.Run != run || got.LastAttempt.IsZero() == attempts || got.ReadError != nil || got.WriteError != nil {
				t.Errorf("Health = %+v; want %s without errors, and attempts %v", got, run, attempts)
			}
		}
		stopFirst := start(b, first)
		want(first, webhooks.RunUnderWay, false)
		start(b, second)
		want(second, webhooks.RunWaiting, false)
		events := []string{publish(b, second), publish(b, first)}
		time.Sleep(10 * time.Second)
		want(first, webhooks.RunUnderWay, true)
		want(second, webhooks.RunWaiting, false)
		noError(t, second.Redeliver(b.Context(), account, webhook.ID, events[0]))
		events = append(events, publish(b, first))
		time.Sleep(100 * time.Millisecond)
		stopFirst() // attempts are in flight, and end before Run does
		want(first, webhooks.RunEnded, true)
		want(second, webhooks.RunUnderWay, false)
		events = append(events, publish(b, first))
		time.Sleep(10 * time.Second)
		want(second, webhooks.RunUnderWay, true)
		for i, event := range events {
			got := delivery(b, second, event)
			if wantAttempts := map[bool]int{true: 2, false: 1}[i == 0]; got.State != webhooks.Delivered || len(got.Attempts) != wantAttempts {
				t.Errorf("event %d: %+v; want it delivered by %d attempts", i, got, wantAttempts)
			}
		}
		if hits := len(b.hits.of("a")); hits != len(events)+1 {
			t.Errorf("%d requests for %d events and one resend", hits, len(events))
		}
	})
}
