package webhooks_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A listStore counts and intercepts the reads of the list of events.
type listStore struct {
	driver.WebhookStore
	lists atomic.Int32
	after func() // called after each read, if not nil
}

func (s *listStore) ListEvents(ctx context.Context, account string, query driver.EventQuery) (driver.EventPage, error) {
	s.lists.Add(1)
	page, err := s.WebhookStore.ListEvents(ctx, account, query)
	if s.after != nil {
		s.after()
	}
	return page, err
}

// A waiting is the result of a call to WaitEvents, and how long it took.
type waiting struct {
	page webhooks.EventPage
	err  error
	took time.Duration
}

// wait calls WaitEvents in the background.
func wait(ctx context.Context, s *webhooks.WebhookService, account string, query webhooks.EventQuery) <-chan waiting {
	query.OldestFirst, query.Limit = true, 10
	result, begun := make(chan waiting, 1), time.Now()
	go func() {
		page, err := s.WaitEvents(ctx, account, query)
		result <- waiting{page, err, time.Since(begun)}
	}()
	return result
}

// want fails the test unless the call has ended after the given time with these events.
func (w waiting) want(t *testing.T, took time.Duration, events ...string) {
	t.Helper()
	var got []string
	for _, event := range w.page.Events {
		got = append(got, event.ID)
	}
	if w.err != nil || w.took != took || fmt.Sprint(got) != fmt.Sprint(events) || w.page.Resume == "" {
		t.Errorf("got %v after %v with Resume %q, %v; want %v after %v", got, w.took, w.page.Resume, w.err, events, took)
	}
}

func TestWaitEvents_Published_ReturnsAtOnce(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &listStore{WebhookStore: memory.New()}
		service, other := newService(t, store, webhooks.Config{}), newService(t, store, webhooks.Config{})
		first := publish(t, service)
		had := <-wait(t.Context(), service, account, webhooks.EventQuery{})
		had.want(t, 0, first)
		next := webhooks.EventQuery{After: had.page.Resume}

		waits := wait(t.Context(), service, account, next)
		time.Sleep(10500 * time.Millisecond)
		second := publish(t, service)
		got := <-waits
		got.want(t, 10500*time.Millisecond, second)
		next.After = got.page.Resume

		// Another process has published.
		waits = wait(t.Context(), service, account, next)
		time.Sleep(10500 * time.Millisecond)
		third := publish(t, other)
		got = <-waits
		got.want(t, 11*time.Second, third)
		next.After = got.page.Resume

		// The event is published after the list was read, and before the call waits.
		var fourth string
		store.after = func() {
			if store.after = nil; fourth == "" {
				fourth = publish(t, service)
			}
		}
		got = <-wait(t.Context(), service, account, next)
		got.want(t, 0, fourth)
		next.After = got.page.Resume

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		got = <-wait(ctx, service, account, next)
		got.want(t, 30*time.Second)
		fifth := publish(t, service)
		next.After = got.page.Resume
		(<-wait(t.Context(), service, account, next)).want(t, 0, fifth)
		_, err := service.WaitEvents(t.Context(), account, webhooks.EventQuery{Limit: 1})
		wantInvalid(t, err, "oldestFirst")
	})
}

// Events that the query does not select must not make a waiting call read the list again and again.
func TestWaitEvents_OtherEventsPublished_ReadsTwiceASecond(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &listStore{WebhookStore: memory.New()}
		service := newService(t, store, webhooks.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		query := webhooks.EventQuery{Types: []webhooks.EventType{"files.expiring"}}
		waits := wait(ctx, service, account, query)
		for ctx.Err() == nil {
			publish(t, service)
			time.Sleep(5 * time.Millisecond)
		}
		(<-waits).want(t, 10500*time.Millisecond)
		if got := store.lists.Swap(0); got > 22 {
			t.Errorf("the list was read %d times, want at most 22", got)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		(<-wait(ctx, service, "idle", query)).want(t, 10500*time.Millisecond)
		if got := store.lists.Load(); got != 11 {
			t.Errorf("in an idle account, the list was read %d times, want 11", got)
		}
	})
}

func TestWaitEvents_TooMany_DoNotWait(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		service := newService(t, memory.New(), webhooks.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan waiting
		// call makes calls for an account, and returns how many are waiting.
		call := func(account string, calls int) (waits int) {
			for range calls {
				all = append(all, wait(ctx, service, account, webhooks.EventQuery{}))
			}
			synctest.Wait()
			for _, result := range all[len(all)-calls:] {
				if len(result) == 0 {
					waits++
				}
			}
			return waits
		}
		if got := call("greedy", 10_000); got != 32 {
			t.Errorf("of 10,000 calls for an account, %d wait, want 32", got)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if page, err := service.WaitEvents(ended, "greedy", webhooks.EventQuery{OldestFirst: true, Limit: 1, After: "a"}); err != nil || page.Resume != "a" {
			t.Errorf("when ctx has ended: got %+v, %v; want an empty page", page, err)
		}
		total := 32
		for i := range 100 {
			total += call(fmt.Sprint(i), 20)
		}
		if total != 1000 {
			t.Errorf("of calls for all accounts, %d wait, want 1000", total)
		}
		cancel()
		for _, result := range all {
			if got := <-result; got.err != nil || got.page.Resume == "" {
				t.Fatalf("got %+v, want an empty page", got)
			}
		}
		ctx, cancel = context.WithCancel(t.Context())
		if got := call("greedy", 40); got != 32 {
			t.Errorf("after the others have ended, %d wait, want 32", got)
		}
		cancel()
		if synctest.Wait(); service.WaitingAccounts() != 0 {
			t.Errorf("%d accounts are left", service.WaitingAccounts())
		}
	})
}
