package alerts_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// testdata holds the bodies that receivers get. Changing them breaks receivers.
func TestPayloads_Bodies_AreStable(t *testing.T) {
	service := newService(t, memory.New(), testConfig{})
	elsewhere := time.FixedZone("", 2*3600)
	payloads := map[webhooks.EventType]webhooks.Data{
		alerts.TypeFilesExpiring: alerts.FilesExpiring{Files: []alerts.ExpiringFile{
			{ID: "file_1", Name: "Q&A <draft>.pdf", EnvironmentID: "env_1", ExpiresAt: time.Date(2026, 12, 1, 1, 30, 0, 5_999_999, elsewhere)},
			{ID: "file_2", ExpiresAt: time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)},
		}},
		alerts.TypeBalanceLow:                   alerts.BalanceLow{Balance: 9_500_000_000, Threshold: 10_000_000_000},
		alerts.TypeBandwidthLimitApproaching:    alerts.BandwidthLimitApproaching{UsedBytes: 80, LimitBytes: 100, Period: "2026-11", Ratio: 0.8},
		alerts.TypeBandwidthLimitReached:        alerts.BandwidthLimitReached{UsedBytes: 1 << 62, LimitBytes: 1 << 61, Period: "2026-11"},
		alerts.TypeTransactionsLimitApproaching: alerts.TransactionsLimitApproaching{Used: 80, Limit: 100, Period: "2026-11", Ratio: 0.8},
		alerts.TypeTransactionsLimitReached:     alerts.TransactionsLimitReached{Period: "2026-11"},
	}
	for _, eventType := range alerts.EventTypes() {
		t.Run(string(eventType), func(t *testing.T) {
			encoded, err := service.Encode(t.Context(), webhooks.Event{
				ID: "evt_01JD5XQ0000000000000000000", Account: account, Timestamp: noon.Add(1_234_567).In(elsewhere), Data: payloads[eventType],
			})
			noError(t, err)
			if encoded.Type != eventType || encoded.Timestamp != noon.Add(time.Millisecond) {
				t.Errorf("the encoded is of %s at %v", encoded.Type, encoded.Timestamp)
			}
			golden := filepath.Join("testdata", string(eventType)+".json")
			if *update {
				if err := os.WriteFile(golden, append(encoded.Body, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(encoded.Body)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

type fakePayload struct{ alerts.BalanceLow }

// The test covers pointers and types that embed a payload.
func TestPayloads_OtherTypes_Refused(t *testing.T) {
	service := newService(t, memory.New(), testConfig{})
	for _, data := range []webhooks.Data{fakePayload{}, &alerts.BalanceLow{}, (*alerts.BalanceLow)(nil), nil} {
		wantInvalid(t, service.Publish(t.Context(), webhooks.Event{Account: account, Data: data}), "data")
	}
}

// The WebhookService in this test does not declare the event types.
func TestNew_EventsNotDeclared_Fails(t *testing.T) {
	store := memory.New()
	hooks, err := webhooks.New(store, webhooks.Config{})
	noError(t, err)
	if _, err := alerts.New(store, hooks, alerts.Config{}); err == nil {
		t.Error("New succeeded")
	}
}
