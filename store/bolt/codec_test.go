package bolt

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/creation"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// records returns one good record of each kind.
func records() [][]byte {
	at := time.UnixMilli(1_800_000_000_123).UTC()
	key := apikeys.Key{ID: "key_1", Account: "acct", Name: "name", Scopes: scopes.All(), CreatedAt: at, ExpiresAt: at}
	key.Previous.Sum[0], key.PreviousExpiresAt = 1, at
	webhook := webhooks.Webhook{
		ID: "wh_1", Account: "acct", URL: "https://example.com/", Events: webhooks.EventTypes(), Active: true,
		BalanceThreshold: 1, Secret: signing.NewSecret(), CreatedAt: at, FailingSince: at, WarnedAt: at, OffReason: webhooks.OffFailing,
		PreviousSecret: signing.NewSecret(), PreviousSecretExpiresAt: at, PastEvents: webhooks.EventTypes(),
	}
	event := webhooks.Envelope{ID: "evt_1", Account: "acct", Type: webhooks.TypeBalanceLow, Timestamp: at, Body: []byte("{}")}
	attempt := webhooks.Attempt{Number: 3, StartedAt: at, Duration: time.Second, Status: 500, Class: webhooks.ClassStatus, Error: "status 500", Response: "oops"}
	job := recovery{webhooks.Recovery{
		ID: "rec_1", Account: "acct", WebhookID: "wh_1", States: []webhooks.DeliveryState{webhooks.Dead}, From: at, To: at, CreatedAt: at, Recovered: 300,
	}, 1 << 20}
	var s Store
	return [][]byte{
		encodeKey(&key), s.encodeWebhook(&webhook), encodeEvent(&event), encodeBody(event.Body), encodeOwed(at, 3, 2, true),
		encodeAttempt(&attempt, webhooks.Retry), encodeRun(4096, []uint64{4096, 4300, 8000}), encodeRecovery(&job),
		(&request{creation.Repeated{ID: "key_1", Sum: creation.Sum{1}}, at}).encode(),
	}
}

var decoders = []func(record []byte) error{
	func(r []byte) error { return decodeKey(new(apikeys.Key), make([]byte, 32), r) },
	func(r []byte) error { var s Store; _, err := s.decodeWebhook("acct", "wh_1", r); return err },
	func(r []byte) error { _, err := decodeEvent(r); return err },
	func(r []byte) error { _, err := decodeBody(r); return err },
	func(r []byte) error { _, err := decodeOwed(r); return err },
	func(r []byte) error { _, _, err := decodeAttempt(r); return err },
	func(r []byte) error { _, err := decodeRun(4096, r); return err },
	func(r []byte) error { _, err := decodeRecovery("rec_1", r); return err },
	func(r []byte) error { _, err := decodeRequest(r); return err },
}

func TestDamagedRecords(t *testing.T) {
	for i, record := range records() {
		if err := decoders[i](record); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		newer := append([]byte{recordVersion + 1}, record[1:]...)
		damages := [][]byte{{}, newer}
		if len(record) > 10 { // shorter ones may end anywhere
			damages = append(damages, []byte{recordVersion}, record[:5])
		}
		for _, damaged := range damages {
			if err := decoders[i](damaged); !errors.Is(err, errRecord) {
				t.Errorf("record %d damaged to %d bytes: err = %v", i, len(damaged), err)
			}
		}
	}
}

// TestFirstWebhookRecords: the first records of webhooks ended with the secret.
func TestFirstWebhookRecords(t *testing.T) {
	var s Store
	w := webhooks.Webhook{ID: "wh_1", Account: "acct", URL: "https://example.com/", Secret: signing.NewSecret()}
	record := s.encodeWebhook(&w)
	got, err := s.decodeWebhook("acct", "wh_1", record[:len(record)-len("\x00\x00\x00")])
	if diff := cmp.Diff(w, got); err != nil || diff != "" {
		t.Errorf("(-want +got), %v:\n%s", err, diff)
	}
}

// FuzzRecords: whatever is in the file, reading it ends in a record or errRecord.
func FuzzRecords(f *testing.F) {
	for _, record := range records() {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		for i, decode := range decoders {
			if err := decode(record); err != nil && !errors.Is(err, errRecord) {
				t.Errorf("record %d: %v", i, err)
			}
		}
	})
}
