package webhooks

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/internal/input"
)

const (
	maxWaits        = 1000        // calls to WaitEvents that wait at the same time
	maxAccountWaits = 32          // waiting calls for one account
	waitPoll        = time.Second // between reads of a waiting call that no publication has woken
)

// WaitEvents is like [WebhookService.ListEvents], but does not return an empty page before ctx
// ends, unless the page has a Next: it waits for an event that the query selects. query.OldestFirst
// must be set. When ctx ends, WaitEvents returns an empty page whose Resume continues the list.
//
// An event that this service publishes ends the wait at once. Other events, for example from other
// processes, end the wait within a second: a waiting call reads the list once a second, or twice
// while events outside the query are published. WaitEvents does not wait if 1,000 calls are already
// waiting, or 32 for the account.
func (s *WebhookService) WaitEvents(ctx context.Context, account string, query EventQuery) (EventPage, error) {
	if !query.OldestFirst {
		return EventPage{}, input.Invalid("oldestFirst", "must be set to wait for events")
	}
	published, ok := s.waits.enter(account) // before reading the list, so that no event is missed
	if ok {
		defer s.waits.leave(account, published)
	}
	ticker := time.NewTicker(waitPoll)
	defer ticker.Stop()
	for woken := published; ; {
		page, err := s.ListEvents(ctx, account, query)
		switch {
		case err != nil && ctx.Err() != nil && query.After != "":
			return EventPage{Resume: query.After}, nil
		case err != nil || !ok || len(page.Events) > 0 || page.Next != "":
			return page, err
		}
		query.After = page.Resume
		select {
		case <-woken:
			woken = nil // wait for the next tick, so that events outside the query cause few reads
		case <-ticker.C:
			woken = published
		case <-ctx.Done():
			return page, nil
		}
	}
}

// waits holds the waiting calls to WaitEvents.
type waits struct {
	n        atomic.Int32 // number of calls, so that Publish takes no lock while there are none
	mu       sync.Mutex
	accounts map[string][]chan struct{} // per call, a channel for one signal
}

// enter adds a call, unless there are too many. Each publication signals the channel.
func (w *waits) enter(account string) (published chan struct{}, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n.Load() >= maxWaits || len(w.accounts[account]) >= maxAccountWaits {
		return nil, false
	}
	if w.accounts == nil {
		w.accounts = make(map[string][]chan struct{})
	}
	published = make(chan struct{}, 1)
	w.accounts[account] = append(w.accounts[account], published)
	w.n.Add(1)
	return published, true
}

func (w *waits) leave(account string, published chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n.Add(-1)
	left := slices.DeleteFunc(w.accounts[account], func(other chan struct{}) bool { return other == published })
	if w.accounts[account] = left; len(left) == 0 {
		delete(w.accounts, account)
	}
}

// published wakes the calls that wait for events of the account. Call it after the commit.
func (w *waits) published(account string) {
	if w.n.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, published := range w.accounts[account] {
		select {
		case published <- struct{}{}:
		default: // already signaled
		}
	}
}
