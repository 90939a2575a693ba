package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A teller is a store that remembers what reports told, and how often they wrote.
type teller struct {
	webhooks.Store
	mu     sync.Mutex
	events []webhooks.AlertEvent
	writes int
	fail   error // the error of the steps, after they were made
}

func newTeller() *teller { return &teller{Store: memory.New()} }

func (s *teller) UpdateAlert(ctx context.Context, account string, metric webhooks.Metric, change func(*webhooks.AlertStep) error) (int, error) {
	var events []webhooks.AlertEvent
	wrote := false
	deliveries, err := s.Store.UpdateAlert(ctx, account, metric, func(step *webhooks.AlertStep) error {
		before := string(step.State)
		err := change(step)
		events, wrote = step.Events, step.Due || len(step.Events) > 0 || string(step.State) != before && !step.Deferrable
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && wrote {
		s.events = append(s.events, events...)
		s.writes++
	}
	if s.fail != nil {
		return 0, s.fail
	}
	return deliveries, err
}

func (s *teller) EnqueueOnce(ctx context.Context, event webhooks.EncodedEvent, dedupKeys []webhooks.DedupKey) (int, error) {
	deliveries, err := s.Store.EnqueueOnce(ctx, event, dedupKeys)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.events = append(s.events, webhooks.AlertEvent{EncodedEvent: event})
		s.writes++
	}
	if s.fail != nil {
		return 0, s.fail
	}
	return deliveries, err
}

// told returns what was told since it was last called: "balance.low wh_… {…}" each.
func (s *teller) told() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.events {
		var body struct{ Data json.RawMessage }
		if err := json.Unmarshal(event.Body, &body); err != nil {
			panic(err)
		}
		list = append(list, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", event.Type, event.WebhookID, body.Data)), " "))
	}
	s.events = nil
	return list
}

// wrote returns how many steps wrote since it was last called.
func (s *teller) wrote() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.writes
	s.writes = 0
	return n
}

// want checks what was told since it was last called.
func (s *teller) want(tb testing.TB, after string, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, s.told()); diff != "" {
		tb.Errorf("told after %s (-want +got):\n%s", after, diff)
	}
}

// sui returns an amount.
func sui(text string) webhooks.Amount {
	amount, err := webhooks.ParseAmount(text)
	if err != nil {
		panic(err)
	}
	return amount
}

// watch makes a webhook for balance.low events below the threshold, which may be
// empty.
func watch(tb testing.TB, s *webhooks.WebhookService, threshold string) webhooks.Webhook {
	tb.Helper()
	params := webhooks.CreateParams{URL: "https://example.com/", Events: onBalance}
	if threshold != "" {
		params.BalanceThreshold = sui(threshold)
	}
	webhook, err := s.Create(tb.Context(), account, params)
	if err != nil {
		tb.Fatal(err)
	}
	return webhook
}

func unmarshal(data []byte, value any) {
	if err := json.Unmarshal(data, value); err != nil {
		panic(err)
	}
}
