package memory

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
)

// For a day after the clock jumps ahead, Purge must not end pending deliveries.
func TestPurge_ClockSetAhead_KeepsPendingForADay(t *testing.T) {
	const day, ahead = 24 * time.Hour, 31 * 24 * time.Hour
	testbubble.Run(t, func(t *testing.T) {
		var system testclock.Clock
		s := New()
		s.clock.Now = system.Now
		err := s.CreateWebhook(t.Context(), driver.Webhook{
			ID: "wh", Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow},
		}, driver.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: "evt", Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
			t.Fatal(err)
		}
		state := func() driver.DeliveryState {
			if _, err := s.Purge(t.Context(), driver.Purge{Payloads: time.Now().Add(ahead - 30*day), Limit: 9}); err != nil {
				t.Fatal(err)
			}
			list, err := s.EventDeliveries(t.Context(), "acct", "evt")
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].State
		}
		time.Sleep(time.Hour)
		system.RunAhead(ahead)
		for range 24 {
			if got := state(); got != driver.Pending {
				t.Fatalf("delivery is %s within a day after the clock was set, want pending", got)
			}
			time.Sleep(time.Hour)
		}
		if got := state(); got != driver.Dead {
			t.Errorf("delivery is %s a day after the clock was set, want dead", got)
		}
	})
}
